/* Hints for YAML syntax errors.
 *
 * Allow lists are full of "*.name" and IPv6 addresses, and both are syntax errors in YAML until they are quoted; the
 * parser's own words ("did not find expected alphabetic or numeric character") tell nobody so. The line of the error
 * is looked at again: a tab in its indentation, a value that begins with a character YAML keeps for itself, a colon
 * where YAML reads a key. It is a guess for a person; nothing is decided by it. Cannot fail. */
#include "yaml_hint.h"

#include <stdio.h>

#include "problems.h"

static struct str line_around(struct str text, size_t at)
{
	size_t from = at < text.n ? at : text.n, to = from;

	while (from > 0 && text.p[from - 1] != '\n' && text.p[from - 1] != '\r')
		from--;
	while (to < text.n && text.p[to] != '\n' && text.p[to] != '\r')
		to++;
	return (struct str){text.p + from, to - from};
}

/* The indentation of a line: blanks and tabs. */
static size_t indentation(struct str line)
{
	size_t i = 0;

	while (i < line.n && (line.p[i] == ' ' || line.p[i] == '\t'))
		i++;
	return i;
}

/* What a line has to say: behind "- " and behind "key: ". */
static struct str line_value(struct str line)
{
	struct str s = str_skip(line, indentation(line));

	while (s.n >= 2 && s.p[0] == '-' && s.p[1] == ' ') {
		s = str_skip(s, 2);
		s = str_skip(s, indentation(s));
	}
	for (size_t i = 0; i + 1 < s.n; i++) {
		if (s.p[i] != ':' || s.p[i + 1] != ' ')
			continue;
		s = str_skip(s, i + 1);
		return str_skip(s, indentation(s));
	}
	return s;
}

/* The text from its start to a blank, comma or closing bracket. */
static struct str word(struct str s)
{
	size_t n = 0;

	while (n < s.n && !strchr(" \t\r\n,]}", s.p[n]))
		n++;
	return (struct str){s.p, n};
}

static bool is_reserved(char c)
{
	return c != '\0' && strchr("*&!@%`", c) != NULL;
}

static bool contains(struct str s, struct str part)
{
	return s.n >= part.n && memmem(s.p, s.n, part.p, part.n) != NULL;
}

void yaml_syntax_hint(struct str text, size_t at, const char *problem, char out[YAML_HINT_MAX])
{
	struct str line = line_around(text, at), value = line_value(line);
	struct str here = at < text.n ? word(str_skip(text, at)) : STR_LIT("");

	out[0] = '\0';
	if (memchr(line.p, '\t', indentation(line)))
		snprintf(out, YAML_HINT_MAX, "indent with spaces; YAML allows no tab there");
	else if (here.n > 0 && is_reserved(here.p[0]))
		snprintf(out, YAML_HINT_MAX, "text that starts with '%c' must be quoted: %s", here.p[0],
			 problem_quote(here).z);
	else if (value.n > 0 && is_reserved(value.p[0]))
		snprintf(out, YAML_HINT_MAX, "text that starts with '%c' must be quoted: %s", value.p[0],
			 problem_quote(word(value)).z);
	else if (contains(line, STR_LIT("[")) && contains(line, STR_LIT("::")))
		snprintf(out, YAML_HINT_MAX, "an IPv6 address inside [ ] must be quoted: [\"2001:db8::/32\"]");
	else if (problem && strstr(problem, "mapping values"))
		snprintf(out, YAML_HINT_MAX, "quote text that holds a colon before a blank or at its end");
	else if (problem && strstr(problem, "expected ':'"))
		snprintf(out, YAML_HINT_MAX, "write \"key: value\", with a blank after the colon");
}
