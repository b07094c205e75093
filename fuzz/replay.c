/* Runs a fuzz target over files, for builds without libFuzzer: every file of the folders given as arguments (and every
 * file given as one), in turn. Prints how many there were. A target aborts on what it finds, so status 0 means that all
 * of them passed; 2 that something could not be read. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads a whole file into memory of exactly its size, so that the sanitizers see a read past its end. */
static int run_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data = NULL;
	struct stat st;
	int r = -EIO;

	if (!f || fstat(fileno(f), &st) < 0)
		goto out;
	data = malloc(st.st_size > 0 ? (size_t)st.st_size : 1);
	if (!data || fread(data, 1, (size_t)st.st_size, f) != (size_t)st.st_size)
		goto out;
	LLVMFuzzerTestOneInput(data, (size_t)st.st_size);
	r = 0;
out:
	if (r < 0)
		fprintf(stderr, "replay: %s: cannot be read\n", path);
	if (f)
		fclose(f);
	free(data);
	return r;
}

static int run_folder(const char *path, unsigned long *count)
{
	struct dirent **names;
	char file[4096];
	int n = scandir(path, &names, NULL, alphasort), r = 0, len;

	if (n < 0) {
		fprintf(stderr, "replay: %s: %s\n", path, strerror(errno));
		return -errno;
	}
	for (int i = 0; i < n; i++) {
		if (names[i]->d_name[0] != '.') {
			len = snprintf(file, sizeof(file), "%s/%s", path, names[i]->d_name);
			if (len < 0 || (size_t)len >= sizeof(file) || run_file(file) < 0)
				r = -EIO;
			else
				(*count)++;
		}
		free(names[i]);
	}
	free(names);
	return r;
}

int main(int argc, char **argv)
{
	unsigned long count = 0;
	struct stat st;
	int failed = 0;

	for (int i = 1; i < argc; i++) {
		if (stat(argv[i], &st) == 0 && S_ISREG(st.st_mode)) {
			if (run_file(argv[i]) < 0)
				failed = 1;
			else
				count++;
		} else if (run_folder(argv[i], &count) < 0) {
			failed = 1;
		}
	}
	printf("%lu inputs\n", count);
	return failed || argc < 2 ? 2 : 0;
}
