/* main: the verbs. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve.h"
#include "version.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

static int usage(FILE *to, const char *text)
{
	fputs(text, to);
	return to == stdout ? 0 : EXIT_USAGE;
}

static const char serve_help[] =
	"usage: egress-guard serve --config FILE\n"
	"\n"
	"Runs the guard in the foreground. SIGHUP reads the policy again; SIGTERM lets open\n"
	"connections finish within timeouts.drain and exits with 0; a second SIGTERM ends at once.\n"
	"An error at start is told on stderr and exits with 2.\n";

static int verb_serve(int argc, char **argv)
{
	static const struct option options[] = {
		{"config", required_argument, NULL, 'c'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
	const char *config = NULL;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (o == 'h')
			return usage(stdout, serve_help);
		if (o != 'c')
			return usage(stderr, serve_help);
		config = optarg;
	}
	if (!config || optind != argc)
		return usage(stderr, serve_help);
	return serve_run(config);
}

static const char check_help[] =
	"usage: egress-guard check FILE\n"
	"\n"
	"Reads a policy exactly as serve does and prints every error as FILE:LINE:COLUMN: message.\n"
	"Exit status: 0 the policy is good, 1 it has errors, 2 it cannot be read.\n";

static int verb_check(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
	struct policy *p;
	int o, r;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1)
		return usage(o == 'h' ? stdout : stderr, check_help);
	if (optind != argc - 1)
		return usage(stderr, check_help);
	r = serve_load_policy(argv[optind], &p);
	if (r < 0)
		return r == -EINVAL ? EXIT_FAILED : EXIT_USAGE;
	printf("%s: good (%zu roles)\n", argv[optind], policy_n_roles(p));
	policy_unref(p);
	return 0;
}

static const char main_help[] =
	"usage: egress-guard VERB [OPTIONS]\n"
	"\n"
	"  serve --config FILE   run the guard in the foreground\n"
	"  check FILE            read a policy as serve would and print every error\n"
	"\n"
	"egress-guard VERB --help tells more; so does man 8 egress-guard.\n";

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(int argc, char **argv);
	} verbs[] = {{"serve", verb_serve}, {"check", verb_check}};

	if (argc < 2)
		return usage(stderr, main_help);
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "help"))
		return usage(stdout, main_help);
	if (!strcmp(argv[1], "--version")) {
		puts("egress-guard " GUARD_VERSION);
		return 0;
	}
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (!strcmp(argv[1], verbs[i].name))
			return verbs[i].run(argc - 1, argv + 1);
	fprintf(stderr, "egress-guard: no verb \"%s\"\n", argv[1]);
	return usage(stderr, main_help);
}
