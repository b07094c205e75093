/* config: the guard's own YAML file, through the same strict reader as the policy.
 *
 * Every key has a row with its range and default; what is not in the file has the default. All problems are reported, with
 * their places and in their order; nothing is half applied, since the result is only handed out when there is none. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/resolver.h"
#include "policy/problems.h"
#include "policy/yaml.h"

static const char *const top_keys[] = {"listen", "policy", "metrics", "resolver", "workers", "timeouts", "limits", "log",
				       NULL};
static const char *const listen_keys[] = {"address", "role", NULL};
static const char *const resolver_keys[] = {"servers", "timeout", "tries", "cache", NULL};
static const char *const timeout_keys[] = {"head", "connect", "idle", "half_open", "drain", NULL};
static const char *const limit_keys[] = {"connections", NULL};
static const char *const log_keys[] = {"access", "level", NULL};

enum { LISTEN_MAX = 64, SECOND = 1000, HOUR = 3600 * SECOND, DAY = 24 * HOUR };

struct reader {
	struct config *c;
	const char *path;
	struct policy_problems *problems;
	bool no_memory;
};

static char *copy_text(struct reader *r, struct str s)
{
	char *z = strndup(s.p, s.n);

	if (!z)
		r->no_memory = true;
	return z;
}

/* The section under `key` as a map with its keys checked, or NULL. */
static const struct yaml_node *section(struct reader *r, const struct yaml_node *root, const char *key,
				       const char *const *known)
{
	const struct yaml_node *n = yaml_get(root, key);

	if (!n || n->broken)
		return NULL;
	if (n->kind != YAML_MAP) {
		yaml_problem(r->problems, n, NULL, "%s must be a map of keys", key);
		return NULL;
	}
	yaml_check_keys(n, known, r->problems);
	return n;
}

static void duration(struct reader *r, const struct yaml_node *map, const char *key, uint64_t min, uint64_t max,
		     uint64_t *to)
{
	const struct yaml_node *n = map ? yaml_get(map, key) : NULL;

	if (n)
		yaml_duration_ms(n, min, max, to, r->problems);
}

static void number(struct reader *r, const struct yaml_node *map, const char *key, uint64_t min, uint64_t max,
		   uint64_t *to)
{
	const struct yaml_node *n = map ? yaml_get(map, key) : NULL;

	if (n)
		yaml_uint(n, min, max, to, r->problems);
}

/* A scalar's text, or NULL with a problem. */
static const struct str *scalar(struct reader *r, const struct yaml_node *n, const char *what)
{
	if (n->kind == YAML_SCALAR && n->text.n)
		return n->broken ? NULL : &n->text;
	if (!n->broken)
		yaml_problem(r->problems, n, NULL, "%s must be a text", what);
	return NULL;
}

static char *path_beside(struct reader *r, struct str s)
{
	const char *slash = strrchr(r->path, '/');
	char *out = NULL;

	if (s.p[0] == '/' || !slash)
		return copy_text(r, s);
	if (asprintf(&out, "%.*s/%.*s", (int)(slash - r->path), r->path, STR_ARG(s)) < 0) {
		r->no_memory = true;
		return NULL;
	}
	return out;
}

static void read_address(struct reader *r, const struct yaml_node *n, struct config_listen *l)
{
	const struct str *text = scalar(r, n, "address"), fd_word = STR_LIT("fd:");
	const char *why = NULL;

	if (!text)
		return;
	l->text = copy_text(r, *text);
	if (text->n > fd_word.n && !memcmp(text->p, fd_word.p, fd_word.n)) {
		l->fd_name = copy_text(r, str_skip(*text, fd_word.n));
		return;
	}
	if (listen_address_parse(*text, &l->address, &why) < 0)
		yaml_problem(r->problems, n, "write 127.0.0.1:3128, \"[::1]:3128\", unix:/run/NAME.sock or fd:NAME",
			     "not an address to listen on: %s", why);
}

static void read_role(struct reader *r, const struct yaml_node *n, struct config_listen *l)
{
	const struct str *text = scalar(r, n, "role");

	if (!text)
		return;
	if (text->n > POLICY_ROLE_NAME_MAX) {
		yaml_problem(r->problems, n, NULL, "a role name has at most %d bytes", POLICY_ROLE_NAME_MAX);
		return;
	}
	memcpy(l->role, text->p, text->n);
	l->role[text->n] = '\0';
}

static void read_listen(struct reader *r, const struct yaml_node *root)
{
	const struct yaml_node *list = yaml_get(root, "listen"), *n, *v;
	size_t i = 0;

	if (list && list->broken)
		return;
	if (!list || list->kind != YAML_LIST || !list->n || list->n > LISTEN_MAX) {
		yaml_problem(r->problems, list ? list : root, "listen: [{address: \"127.0.0.1:3128\", role: agent}]",
			     "listen must be a list of 1 to %d addresses", LISTEN_MAX);
		return;
	}
	r->c->listen = calloc(list->n, sizeof(*r->c->listen));
	if (!r->c->listen) {
		r->no_memory = true;
		return;
	}
	r->c->n_listen = list->n;
	for (n = list->child; n; n = n->next, i++) {
		struct config_listen *l = &r->c->listen[i];

		l->address.fd = -1;
		if (n->broken)
			continue;
		if (n->kind != YAML_MAP) {
			yaml_problem(r->problems, n, NULL, "each listener is a map with address and role");
			continue;
		}
		yaml_check_keys(n, listen_keys, r->problems);
		v = yaml_get(n, "address");
		if (v)
			read_address(r, v, l);
		else
			yaml_problem(r->problems, n, NULL, "the listener has no address");
		v = yaml_get(n, "role");
		if (v)
			read_role(r, v, l);
		else
			yaml_problem(r->problems, n, NULL, "the listener has no role");
	}
}

static void read_resolver(struct reader *r, const struct yaml_node *root)
{
	const struct yaml_node *m = section(r, root, "resolver", resolver_keys);
	const struct yaml_node *servers = m ? yaml_get(m, "servers") : NULL;
	struct buf b = {0};

	duration(r, m, "timeout", 50, 60 * SECOND, &r->c->dns_timeout_ms);
	number(r, m, "tries", 1, 10, &r->c->dns_tries);
	number(r, m, "cache", 0, 1000000, &r->c->dns_cache);
	if (servers && servers->kind != YAML_LIST && !servers->broken)
		yaml_problem(r->problems, servers, "servers: [192.0.2.53]", "servers must be a list of addresses");
	for (const struct yaml_node *n = servers && servers->kind == YAML_LIST ? servers->child : NULL; n; n = n->next) {
		const struct str *text = scalar(r, n, "a server");
		struct resolver_config one = {.timeout_ms = 1000, .tries = 1}; /* only the text is asked about */
		const char *why = NULL;
		char *z;

		if (!text)
			continue;
		z = copy_text(r, *text);
		one.servers = z;
		if (z && resolver_check(&one, &why) < 0)
			yaml_problem(r->problems, n, "write ADDRESS, ADDRESS:PORT or \"[IPv6]:PORT\"", "not a name server: %s",
				     why);
		free(z);
		if (b.len)
			buf_add_z(&b, ",");
		buf_add_str(&b, *text);
	}
	buf_add(&b, "", 1);
	if (b.failed)
		r->no_memory = true;
	else
		r->c->dns_servers = copy_text(r, str_from(buf_view(&b).p));
	buf_free(&b);
}

static void read_log(struct reader *r, const struct yaml_node *root)
{
	const struct yaml_node *m = section(r, root, "log", log_keys);
	const struct yaml_node *access = m ? yaml_get(m, "access") : NULL, *level = m ? yaml_get(m, "level") : NULL;
	const struct str *text = access ? scalar(r, access, "access") : NULL;

	if (!text)
		r->c->log_path = strdup("stderr");
	else if (str_eq(*text, STR_LIT("stderr")) || str_eq(*text, STR_LIT("stdout")))
		r->c->log_path = copy_text(r, *text);
	else
		r->c->log_path = path_beside(r, *text);
	if (!r->c->log_path)
		r->no_memory = true;
	text = level ? scalar(r, level, "level") : NULL;
	if (text && !log_level_from(*text, &r->c->log_level))
		yaml_problem(r->problems, level, "one of error, warning, info, debug", "unknown level");
}

static void read_workers(struct reader *r, const struct yaml_node *root)
{
	const struct yaml_node *n = yaml_get(root, "workers");

	if (n && !(n->kind == YAML_SCALAR && str_eq(n->text, STR_LIT("auto"))))
		yaml_uint(n, 1, 256, &r->c->workers, r->problems);
}

static void read_paths(struct reader *r, const struct yaml_node *root)
{
	const struct yaml_node *policy = yaml_get(root, "policy"), *metrics = yaml_get(root, "metrics");
	const struct str *text;
	const char *why = NULL;

	if (!policy)
		yaml_problem(r->problems, root, "policy: policy.yaml", "policy is missing: the guard has nothing to allow by");
	text = policy ? scalar(r, policy, "policy") : NULL;
	if (text)
		r->c->policy_path = path_beside(r, *text);
	text = metrics ? scalar(r, metrics, "metrics") : NULL;
	if (!text)
		return;
	r->c->has_metrics = true;
	if (listen_address_parse(*text, &r->c->metrics, &why) < 0)
		yaml_problem(r->problems, metrics, "write 127.0.0.1:9108", "not an address to listen on: %s", why);
}

int config_read(struct str text, const char *path, struct config *ret, struct policy_problems *problems)
{
	struct config c = {.dns_timeout_ms = 1000, .dns_tries = 2, .dns_cache = 10000, .head_ms = 10 * SECOND,
			   .connect_ms = 4 * SECOND, .idle_ms = HOUR, .half_open_ms = 300 * SECOND,
			   .drain_ms = 30 * SECOND, .max_connections = 20000, .log_level = LOG_LEVEL_INFO};
	struct reader r = {.c = &c, .path = path, .problems = problems};
	const struct yaml_node *root, *m;
	struct yaml_doc *doc = NULL;
	int err = yaml_parse_partial(text, &doc, problems);

	if (err < 0)
		return err;
	root = yaml_root(doc);
	if (problems_any(problems) && (!root || root->broken))
		goto out; /* what is missing may stand in the part that could not be read */
	if (!root || root->kind != YAML_MAP) {
		yaml_problem(problems, root, NULL, "the configuration must be a map of keys");
		goto out;
	}
	yaml_check_keys(root, top_keys, problems);
	read_listen(&r, root);
	read_paths(&r, root);
	read_resolver(&r, root);
	read_workers(&r, root);
	read_log(&r, root);
	m = section(&r, root, "timeouts", timeout_keys);
	duration(&r, m, "head", 10, HOUR, &c.head_ms);
	duration(&r, m, "connect", 10, HOUR, &c.connect_ms);
	duration(&r, m, "idle", 10, 30 * (uint64_t)DAY, &c.idle_ms);
	duration(&r, m, "half_open", 10, 30 * (uint64_t)DAY, &c.half_open_ms);
	duration(&r, m, "drain", 0, DAY, &c.drain_ms);
	m = section(&r, root, "limits", limit_keys);
	number(&r, m, "connections", 1, 1000000, &c.max_connections);
out:
	yaml_doc_free(doc);
	problems_sort(problems);
	if (r.no_memory || problems->out_of_memory)
		err = -ENOMEM;
	else if (problems_any(problems))
		err = -EINVAL;
	if (err < 0)
		config_clear(&c);
	else
		*ret = c;
	return err;
}

void config_clear(struct config *c)
{
	for (size_t i = 0; i < c->n_listen; i++) {
		free(c->listen[i].text);
		free(c->listen[i].fd_name);
	}
	free(c->listen);
	free(c->policy_path);
	free(c->dns_servers);
	free(c->log_path);
	*c = (struct config){0};
}

int config_read_file(const char *path, size_t max, char **ret, size_t *ret_n)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), r = 0;
	size_t n = 0, cap = 64 * 1024;
	char *mem = NULL, *more;
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
		r = -EISDIR;
		goto out;
	}
	for (;;) {
		ssize_t got;

		more = mem && n + 1 < cap ? mem : realloc(mem, mem ? cap *= 2 : cap);
		if (!more) {
			r = -ENOMEM;
			goto out;
		}
		mem = more;
		got = read(fd, mem + n, cap - n - 1);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			r = -errno;
		if (got <= 0)
			break;
		n += (size_t)got;
		if (n > max) {
			r = -EFBIG;
			goto out;
		}
	}
out:
	close(fd);
	if (r < 0) {
		free(mem);
		return r;
	}
	mem[n] = '\0';
	*ret = mem;
	*ret_n = n;
	return 0;
}
