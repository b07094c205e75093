/* Strict YAML: from libyaml's events to a small tree.
 *
 * Bytes are looked at first (yaml_chars.c). Then events build the tree over a stack of at most YAML_DEPTH_MAX open
 * lists and maps: nothing here recurses, and since libyaml 0.2.5 has no depth limit of its own and slows down with the
 * square of the depth, the loop stops pulling events as soon as the limit is passed. Event by event everything that
 * YAML offers beyond plain trees is refused: anchors, aliases, tags, directives, merge keys, further documents.
 *
 * libyaml counts columns in characters and lines in its own way. Places are counted here, in bytes, with a cursor that
 * moves through the text along with the events (whose marks only ever grow), so the whole is linear.
 *
 * Errors: a problem is appended and reading goes on, but for a syntax error, the depth or the node limit, where it
 * stops; what was open then is marked broken. Memory comes from an arena that dies with the document; any failed
 * allocation, libyaml's own included, ends in -ENOMEM with nothing left behind. There is no other state. */
#include "yaml.h"

#include <errno.h>
#include <stdlib.h>
#include <libyaml.h>

#include "problems.h"
#include "yaml_chars.h"
#include "yaml_hint.h"

enum { CHUNK_BYTES = 64 * 1024 };

struct chunk {
	struct chunk *next;
	size_t used, size;
	_Alignas(16) char data[];
};

struct yaml_doc {
	struct chunk *chunks;
	struct yaml_node *root;
	size_t n_nodes;
};

/* An open list or map. */
struct frame {
	struct yaml_node *node;
	struct yaml_node *last; /* its newest value */
	struct yaml_node *key;  /* map: a key whose value is still to come */
};

/* Where in the text: the character that libyaml calls `chars` is at byte `bytes`. */
struct cursor {
	size_t chars, bytes;
	size_t line_chars, line_bytes; /* where its line starts */
	uint32_t line;
};

struct reader {
	struct str text;
	struct cursor cursor;
	struct yaml_doc *doc;
	struct policy_problems *problems;
	struct frame stack[YAML_DEPTH_MAX];
	size_t depth;
	size_t n_documents;
};

static void *doc_alloc(struct yaml_doc *d, size_t n)
{
	struct chunk *c = d->chunks;
	void *p;

	n = (n + 15) & ~(size_t)15;
	if (!c || c->size - c->used < n) {
		size_t size = n > CHUNK_BYTES ? n : CHUNK_BYTES;

		c = malloc(sizeof(*c) + size);
		if (!c)
			return NULL;
		*c = (struct chunk){.next = d->chunks, .size = size};
		d->chunks = c;
	}
	p = c->data + c->used;
	c->used += n;
	return p;
}

struct yaml_doc *yaml_doc_free(struct yaml_doc *d)
{
	if (!d)
		return NULL;
	for (struct chunk *c = d->chunks, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	free(d);
	return NULL;
}

const struct yaml_node *yaml_root(const struct yaml_doc *d)
{
	return d ? d->root : NULL;
}

/* Moves the cursor to a character. Marks grow from event to event; an error may point back, seldom far. */
static void cursor_to(struct reader *r, size_t chars)
{
	struct cursor *c = &r->cursor;
	const char *p = r->text.p;

	if (chars < c->line_chars) {
		*c = (struct cursor){.line = 1};
	} else if (chars < c->chars) {
		c->chars = c->line_chars;
		c->bytes = c->line_bytes;
	}
	while (c->chars < chars && c->bytes < r->text.n) {
		char was = p[c->bytes++];

		while (c->bytes < r->text.n && (p[c->bytes] & 0xc0) == 0x80)
			c->bytes++;
		c->chars++;
		if (was != '\n' && !(was == '\r' && !(c->bytes < r->text.n && p[c->bytes] == '\n')))
			continue;
		c->line++;
		c->line_chars = c->chars;
		c->line_bytes = c->bytes;
	}
}

static uint32_t cursor_column(const struct cursor *c)
{
	return (uint32_t)(c->bytes - c->line_bytes + 1);
}

static struct yaml_node *node_new(struct reader *r, enum yaml_kind kind, const yaml_mark_t *mark)
{
	struct yaml_node *n = doc_alloc(r->doc, sizeof(*n));

	if (!n)
		return NULL;
	cursor_to(r, mark->index);
	*n = (struct yaml_node){.kind = kind, .line = r->cursor.line, .column = cursor_column(&r->cursor)};
	r->doc->n_nodes++;
	return n;
}

static void check_key(struct reader *r, struct yaml_node *key)
{
	if (key->kind != YAML_SCALAR) {
		yaml_problem(r->problems, key, "write a plain word before the colon", "a list or map cannot be a key");
	} else if (!key->quoted && str_eq(key->text, STR_LIT("<<"))) {
		yaml_problem(r->problems, key, "write the keys out", "merge keys (<<) are not allowed");
	} else {
		return;
	}
	key->broken = true;
}

/* Puts a node where it belongs: it is the root, the next value of a list, or a key or the value of one. */
static void attach(struct reader *r, struct yaml_node *n)
{
	struct frame *f;

	if (r->depth == 0) {
		r->doc->root = n;
		return;
	}
	f = &r->stack[r->depth - 1];
	if (f->node->kind == YAML_MAP && !f->key) {
		f->key = n;
		check_key(r, n);
		return;
	}
	n->key = f->key;
	f->key = NULL;
	if (f->last)
		f->last->next = n;
	else
		f->node->child = n;
	f->last = n;
	f->node->n++;
}

/* Anchors and tags, on whatever node they stand. A bare "!" leaves no trace but the byte in the text. */
static void refuse_properties(struct reader *r, struct yaml_node *n, const void *anchor, const void *tag)
{
	size_t at = r->cursor.bytes;
	bool bang = at < r->text.n && r->text.p[at] == '!';

	if (anchor)
		yaml_problem(r->problems, n, "write the value out where it is needed; quote text that starts with '&'",
			     "anchors (&) are not allowed");
	if (tag || bang)
		yaml_problem(r->problems, n, "quote text that starts with '!'", "tags (!) are not allowed");
	n->broken = n->broken || anchor || tag || bang;
}

/* Stops when the document has grown past its limit: memory is bounded whatever the text. */
static int check_size(struct reader *r, const struct yaml_node *n)
{
	if (r->doc->n_nodes <= YAML_NODES_MAX)
		return 0;
	yaml_problem(r->problems, n, NULL, "more than %d keys and values", YAML_NODES_MAX);
	return -E2BIG;
}

/* Escapes in a quoted scalar, and block scalars, can hold what the file itself may not. What stands in the file as it is
 * was told of by the scan. */
static void check_value(struct reader *r, struct yaml_node *n, const yaml_event_t *ev)
{
	const unsigned char *value = ev->data.scalar.value;
	size_t length = ev->data.scalar.length, from = r->cursor.bytes, len;

	for (size_t i = 0; i < length && !n->broken; i += len) {
		const struct yaml_bad_char *bad = yaml_char_look(value + i, length - i, &len);
		bool blank = value[i] == '\t' || value[i] == '\n' || value[i] == '\r';

		if (!bad && !blank)
			continue;
		n->broken = true;
		cursor_to(r, ev->end_mark.index);
		if (bad && memmem(r->text.p + from, r->cursor.bytes - from, value + i, len))
			return;
		yaml_problem(r->problems, n, "write it as plain text on one line", "the text holds %s",
			     blank ? "a tab or line break" : bad->what);
	}
}

static int on_scalar(struct reader *r, const yaml_event_t *ev)
{
	const unsigned char *value = ev->data.scalar.value;
	size_t length = ev->data.scalar.length;
	struct yaml_node *n = node_new(r, YAML_SCALAR, &ev->start_mark);
	char *copy = doc_alloc(r->doc, length + 1);

	if (!n || !copy)
		return -ENOMEM;
	memcpy(copy, value, length);
	copy[length] = '\0';
	n->text = (struct str){copy, length};
	n->quoted = ev->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
	refuse_properties(r, n, ev->data.scalar.anchor, ev->data.scalar.tag);
	check_value(r, n, ev);
	attach(r, n);
	return check_size(r, n);
}

static int on_start(struct reader *r, enum yaml_kind kind, const yaml_event_t *ev, const void *anchor, const void *tag)
{
	struct yaml_node *n = node_new(r, kind, &ev->start_mark);

	if (!n)
		return -ENOMEM;
	refuse_properties(r, n, anchor, tag);
	if (r->depth == YAML_DEPTH_MAX) {
		yaml_problem(r->problems, n, NULL, "nested more than %d levels deep; reading stops here", YAML_DEPTH_MAX);
		return -E2BIG;
	}
	attach(r, n);
	r->stack[r->depth++] = (struct frame){.node = n};
	return check_size(r, n);
}

/* By text, then by place, so that of equal keys the first in the file comes first. */
static int compare_keys(const void *a, const void *b)
{
	const struct yaml_node *x = *(struct yaml_node *const *)a, *y = *(struct yaml_node *const *)b;
	size_t n = x->text.n < y->text.n ? x->text.n : y->text.n;
	int c = memcmp(x->text.p, y->text.p, n);

	if (c == 0 && x->text.n != y->text.n)
		c = x->text.n < y->text.n ? -1 : 1;
	if (c == 0 && x->line != y->line)
		c = x->line < y->line ? -1 : 1;
	return c != 0 ? c : (x->column > y->column) - (x->column < y->column);
}

/* RFC 8259 4 and YAML 1.2 3.2.1.1 ask for unique keys; libyaml does not look. */
static int check_duplicates(struct reader *r, const struct yaml_node *map)
{
	struct yaml_node **keys;
	size_t n = 0, first = 0;

	if (map->n < 2)
		return 0;
	keys = malloc(map->n * sizeof(*keys));
	if (!keys)
		return -ENOMEM;
	for (struct yaml_node *v = map->child; v; v = v->next)
		if (!v->key->broken)
			keys[n++] = v->key;
	qsort(keys, n, sizeof(*keys), compare_keys);
	for (size_t i = 1; i < n; i++) {
		if (!str_eq(keys[i]->text, keys[first]->text)) {
			first = i;
			continue;
		}
		yaml_problem(r->problems, keys[i], "keep one of them", "key %s is given twice, first at line %u, column %u",
			     problem_quote(keys[i]->text).z, keys[first]->line, keys[first]->column);
		keys[i]->broken = true;
	}
	free(keys);
	return 0;
}

static int on_end(struct reader *r)
{
	struct yaml_node *n = r->stack[--r->depth].node;

	return n->kind == YAML_MAP ? check_duplicates(r, n) : 0;
}

static int on_document(struct reader *r, const yaml_event_t *ev)
{
	cursor_to(r, ev->start_mark.index);
	if (r->n_documents++ > 0) {
		problems_add(r->problems, r->cursor.line, cursor_column(&r->cursor), "keep one and remove the \"---\" between",
			     "a second document starts here; reading stops");
		return -E2BIG;
	}
	if (ev->data.document_start.version_directive ||
	    ev->data.document_start.tag_directives.start != ev->data.document_start.tag_directives.end)
		problems_add(r->problems, r->cursor.line, cursor_column(&r->cursor), "remove the line",
			     "YAML directives (%%) are not allowed");
	return 0;
}

/* Stands in for what an alias would have brought in, so that the rest is still read in step. */
static int on_alias(struct reader *r, const yaml_event_t *ev)
{
	struct yaml_node *n = node_new(r, YAML_SCALAR, &ev->start_mark);

	if (!n)
		return -ENOMEM;
	n->text = STR_LIT("");
	n->broken = true;
	yaml_problem(r->problems, n, "write the value out; quote a name that starts with '*'",
		     "aliases (*) are not allowed");
	attach(r, n);
	return check_size(r, n);
}

/* Returns 0 to go on, 1 at the end, -E2BIG to stop with what there is, or -ENOMEM. */
static int on_event(struct reader *r, const yaml_event_t *ev)
{
	switch (ev->type) {
	case YAML_NO_EVENT:
	case YAML_STREAM_START_EVENT:
	case YAML_DOCUMENT_END_EVENT:
		return 0;
	case YAML_STREAM_END_EVENT:
		return 1;
	case YAML_DOCUMENT_START_EVENT:
		return on_document(r, ev);
	case YAML_ALIAS_EVENT:
		return on_alias(r, ev);
	case YAML_SCALAR_EVENT:
		return on_scalar(r, ev);
	case YAML_SEQUENCE_START_EVENT:
		return on_start(r, YAML_LIST, ev, ev->data.sequence_start.anchor, ev->data.sequence_start.tag);
	case YAML_MAPPING_START_EVENT:
		return on_start(r, YAML_MAP, ev, ev->data.mapping_start.anchor, ev->data.mapping_start.tag);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		return on_end(r);
	}
	return 0;
}

/* libyaml has two marks for an error: where the construct began and where it failed. For an unfinished scalar the
 * first tells more, for a structure the second. */
static int on_error(struct reader *r, const yaml_parser_t *parser)
{
	char hint[YAML_HINT_MAX];
	bool began = parser->context && strncmp(parser->context, "while scanning", 14) == 0;

	if (parser->error == YAML_MEMORY_ERROR)
		return -ENOMEM;
	cursor_to(r, began ? parser->context_mark.index : parser->problem_mark.index);
	yaml_syntax_hint(r->text, r->cursor.bytes, parser->problem, hint);
	problems_add(r->problems, r->cursor.line, cursor_column(&r->cursor), hint[0] ? hint : NULL,
		     "YAML syntax: %s%s%s; nothing after this could be read",
		     parser->context ? parser->context : "", parser->context ? ", " : "",
		     parser->problem ? parser->problem : "unreadable");
	return -E2BIG;
}

/* Whatever was open when reading stopped is incomplete, but its keys so far can still be compared. */
static int break_off(struct reader *r)
{
	int err = 0;

	while (r->depth > 0 && err == 0) {
		r->stack[r->depth - 1].node->broken = true;
		err = on_end(r);
	}
	return err;
}

static int read_events(struct reader *r)
{
	yaml_parser_t parser;
	yaml_event_t ev;
	int err = 0;

	if (!yaml_parser_initialize(&parser))
		return -ENOMEM;
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&parser, (const unsigned char *)r->text.p, r->text.n);
	while (err == 0) {
		if (!yaml_parser_parse(&parser, &ev)) {
			err = on_error(r, &parser);
			break;
		}
		err = on_event(r, &ev);
		yaml_event_delete(&ev);
	}
	yaml_parser_delete(&parser);
	return err == -ENOMEM ? err : break_off(r);
}

int yaml_parse_partial(struct str text, struct yaml_doc **ret, struct policy_problems *problems)
{
	struct reader r = {.text = text, .cursor = {.line = 1}, .problems = problems};
	size_t skip = 0;
	int err = 0;

	r.doc = calloc(1, sizeof(*r.doc));
	if (!r.doc)
		return -ENOMEM;
	if (text.n > POLICY_TEXT_MAX) {
		problems_add(problems, 1, 1, NULL, "the file has %zu bytes, more than %d", text.n, POLICY_TEXT_MAX);
	} else if (yaml_chars_scan(text, &skip, problems)) {
		r.text = str_skip(text, skip);
		err = read_events(&r);
	}
	if (err < 0 || problems->out_of_memory) {
		yaml_doc_free(r.doc);
		return -ENOMEM;
	}
	*ret = r.doc;
	return 0;
}

int yaml_parse(struct str text, struct yaml_doc **ret, struct policy_problems *problems)
{
	struct yaml_doc *doc = NULL;
	int err = yaml_parse_partial(text, &doc, problems);

	if (err == 0 && problems_any(problems))
		err = -EINVAL;
	problems_sort(problems);
	if (err < 0) {
		yaml_doc_free(doc);
		return err;
	}
	*ret = doc;
	return 0;
}
