/* What a person who meets a YAML syntax error most likely meant. */
#ifndef POLICY_YAML_HINT_H
#define POLICY_YAML_HINT_H

#include "str.h"

enum { YAML_HINT_MAX = 160 };

/* Guesses from the place of an error and libyaml's words for it (may be NULL). Writes "" when it has no idea. */
void yaml_syntax_hint(struct str text, size_t at, const char *problem, char out[YAML_HINT_MAX]);

#endif
