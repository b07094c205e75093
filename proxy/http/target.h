/* Request targets (RFC 9112 3.2): authority-form for CONNECT, absolute-form for the rest; nothing else picks a host. */
#ifndef HTTP_TARGET_H
#define HTTP_TARGET_H

#include "http/head.h"
#include "policy/policy.h"

struct target {
	struct policy_target to;  /* host and port (80 when an absolute-form names none) */
	bool connect;
	struct str path_query;    /* absolute-form: as received; an empty one is "/" ("*" for OPTIONS) */
	bool slash;               /* an empty path before a query: "/" is to stand before path_query */
	struct str authority;     /* absolute-form: the Host to send; as received, less port 80 or none */
	bool explicit_port;       /* absolute-form: a port other than 80 was named */
};

/* Reads method, target and Host of a parsed head. Returns VERDICT_ALLOW with *ret filled, its views into the input of
 * the head; else the refusal (bad_request, bad_target, scheme_not_supported, method_not_allowed) with *ret_why a few
 * words for the reply (static text, no byte of the request in it). Host never picks a destination; an absolute-form
 * whose Host names another host or port is refused (bad_target), as one of the two is a lie.
 * The port is only checked for syntax here (bad_target); whether it may be used is the policy's. */
enum verdict target_parse(const struct head *h, struct target *ret, const char **ret_why);

#endif
