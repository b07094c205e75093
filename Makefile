# egress-guard. `make help` lists what there is to do.
#
# Objects go to .build/NAME, one folder for each kind of build (plain, or the sanitizers named by SAN), so that switching
# between them rebuilds nothing. Every .c in policy/ and proxy/ is part of the library that all programs link.
# Nothing is written into the tree but .build.

SHELL := /bin/bash
.DEFAULT_GOAL := all
.SECONDARY:

SAN ?=
comma := ,
BUILD := .build/$(if $(SAN),$(subst $(comma),-,$(SAN)),plain)
ifeq ($(origin CC),default)
CC := gcc
endif
# V=1 shows whole command lines.
V ?=
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-4s %s\n' $(1) $(2))
PKGS := libevent_core libevent_extra libevent_pthreads libcares yaml-0.1 libidn2 libsystemd
# Silent while the packages are missing: `make help` and `make deps` are there to be run then.
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS := $(shell pkg-config --libs $(PKGS) 2>/dev/null)
CFLAGS_USER ?= -O2 -g
WARN := -Wall -Wextra -Werror -Wswitch-enum -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes \
	-Wformat=2 -Wvla -Wundef -Wno-unused-parameter
CPPFLAGS += -D_GNU_SOURCE -I. -Iproxy -Ipolicy $(PKG_CFLAGS)
CFLAGS_ALL = -std=gnu11 -pthread $(WARN) $(CFLAGS_USER) -fstack-protector-strong -fno-strict-aliasing -MMD -MP \
	$(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all,-D_FORTIFY_SOURCE=2 -fPIE)
LDFLAGS_ALL = $(if $(SAN),-fsanitize=$(SAN),-pie -Wl,-z,relro,-z,now) -pthread
LDLIBS = $(PKG_LIBS)

LIB_SRC := $(filter-out proxy/main.c,$(wildcard policy/*.c proxy/*.c proxy/*/*.c))
LIB_OBJ := $(LIB_SRC:%.c=$(BUILD)/%.o)
UNIT_SRC := $(wildcard tests/unit/test_*.c tests/sim/test_*.c)
UNIT_BIN := $(UNIT_SRC:tests/%.c=$(BUILD)/%)
PLATFORM_SRC := $(wildcard tests/platform/*.c)
PLATFORM_BIN := $(PLATFORM_SRC:tests/%.c=$(BUILD)/%)
FUZZ_SRC := $(wildcard fuzz/fuzz_*.c)
FUZZ_BIN := $(FUZZ_SRC:%.c=$(BUILD)/%)

.PHONY: all unit
all: $(BUILD)/egress-guard

$(BUILD)/egress-guard: $(BUILD)/proxy/main.o $(BUILD)/libguard.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LDLIBS)

$(BUILD)/libguard.a: $(LIB_OBJ)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS_ALL) -c -o $@ $<

# One program for each file of tests/unit and tests/sim.
$(UNIT_BIN): $(BUILD)/%: $(BUILD)/tests/%.o $(BUILD)/libguard.a
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LDLIBS) -lcmocka

unit: $(UNIT_BIN)
	@for t in $(UNIT_BIN); do $$t || exit 1; done

# Assumptions about the kernel and the libraries: programs of their own, with nothing of the guard in them.
$(PLATFORM_BIN): $(BUILD)/%: $(BUILD)/tests/%.o
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LDLIBS)

# A fuzz target with replay.c as its main: it runs files through the target, without libFuzzer.
$(FUZZ_BIN): %: %.o $(BUILD)/fuzz/replay.o $(BUILD)/libguard.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LDLIBS)

-include $(LIB_OBJ:.o=.d) $(BUILD)/proxy/main.d $(UNIT_SRC:%.c=$(BUILD)/%.d) \
	$(PLATFORM_SRC:%.c=$(BUILD)/%.d) $(FUZZ_BIN:=.d) $(BUILD)/fuzz/replay.d

# --- what people type -------------------------------------------------------------------------------------------------

JOBS ?= $(shell nproc 2>/dev/null || echo 1)
# A make that was told -j hands its job slots down; one that was not gets the number of cores.
SUBMAKE = $(MAKE) --no-print-directory $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-O -j$(JOBS))
# The scripts that run make themselves start with a jobserver of their own: Python hands no descriptors down.
RUNNER = MAKEFLAGS='$(filter-out -j% --jobserver%,$(MAKEFLAGS))' MAKE='$(MAKE) --no-print-directory -O -j$(JOBS)' \
	BUILD='$(BUILD)' SAN='$(SAN)' JOBS='$(JOBS)' LINT_CPPFLAGS='$(CPPFLAGS)'
STAGES ?=
PREFIX ?= /usr/local
DESTDIR ?=
T ?=
SECONDS ?= 60
INSTALL ?= install

.PHONY: help deps run check check-programs objects lint fuzz lab install clean

help: ## this list
	@echo 'make TARGET [SAN=address,undefined | SAN=thread]'
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r target text; do \
		printf '  %-9s %s\n' "$$target" "$$text"; done

deps: ## installs the Debian packages that are missing (tests/packages); does nothing when all are there
	@tests/deps

# The packages may just have come: their flags are known only to a make that starts now.
run: ## builds the guard and starts it on 127.0.0.1:3128 with the configuration in conf/
	@tests/deps build
	@$(SUBMAKE) all
	@printf '%s\n' \
		'Try it from another terminal:' \
		'  curl -x http://127.0.0.1:3128 https://example.org/                         allowed by conf/policy.yaml' \
		'  curl -v -x http://127.0.0.1:3128 https://example.net/                      refused: host_not_allowed' \
		'  curl -x http://127.0.0.1:3128 http://169.254.169.254/latest/meta-data/     refused: address_link_local' \
		'Control-C stops it; the access log follows.'
	@exec $(BUILD)/egress-guard serve --config conf/egress-guard.yaml

check: ## builds and runs every test and lint; STAGES="unit lint" runs some of: build unit sim platform fuzz sys lint
	@tests/deps || { echo '0 passed, 1 failed'; exit 1; }
	@$(RUNNER) tests/run $(STAGES)

check-programs: all $(UNIT_BIN) $(PLATFORM_BIN) $(FUZZ_BIN)

objects: $(LIB_OBJ) $(BUILD)/proxy/main.o

lint: ## layers, banned calls, lengths, words, manual pages, cppcheck, clang-tidy
	@tests/deps
	@$(RUNNER) tests/lint/all

lab: all ## opens a shell in the test network: guard host, world, origins, name servers
	@GUARD_BIN=$(abspath $(BUILD)/egress-guard) tests/lab/lab shell

install: all ## DESTDIR= PREFIX=/usr/local: binary, manual pages, systemd unit, configuration as examples
	$(INSTALL) -D -m 0755 $(BUILD)/egress-guard $(DESTDIR)$(PREFIX)/bin/egress-guard
	$(INSTALL) -D -m 0644 proxy/egress-guard.8 $(DESTDIR)$(PREFIX)/share/man/man8/egress-guard.8
	$(if $(wildcard policy/policy.5),$(INSTALL) -D -m 0644 policy/policy.5 \
		$(DESTDIR)$(PREFIX)/share/man/man5/egress-guard-policy.5)
	$(INSTALL) -d $(DESTDIR)$(PREFIX)/share/doc/egress-guard/examples $(DESTDIR)$(PREFIX)/lib/systemd/system
	$(INSTALL) -m 0644 conf/*.yaml $(DESTDIR)$(PREFIX)/share/doc/egress-guard/examples
	sed 's|/usr/local/|$(PREFIX)/|' conf/egress-guard.service \
		> $(DESTDIR)$(PREFIX)/lib/systemd/system/egress-guard.service

clean: ## removes .build
	rm -rf .build

# --- fuzzing: clang's libFuzzer, always with AddressSanitizer and UndefinedBehaviorSanitizer ------------------------------

FUZZ_BUILD := .build/fuzz
FUZZ_CC ?= clang
FUZZ_FLAGS = -std=gnu11 -pthread -O1 -g -fno-omit-frame-pointer -fno-strict-aliasing -MMD -MP \
	-fno-sanitize-recover=all -fsanitize=address,undefined
FUZZ_LIB_OBJ := $(LIB_SRC:%.c=$(FUZZ_BUILD)/%.o)

fuzz: ## T=NAME [SECONDS=60]: runs fuzz/fuzz_NAME.c; what it finds stays in .build/fuzz
	@if [ ! -f 'fuzz/fuzz_$(T).c' ]; then echo 'make fuzz T=NAME [SECONDS=60]; NAME is one of:' \
		$(patsubst fuzz/fuzz_%.c,%,$(FUZZ_SRC)) >&2; exit 2; fi
	@tests/deps build fuzz
	@$(SUBMAKE) $(FUZZ_BUILD)/fuzz_$(T)
	@mkdir -p $(FUZZ_BUILD)/scratch/$(T) $(FUZZ_BUILD)/found
	$(FUZZ_BUILD)/fuzz_$(T) -max_total_time=$(SECONDS) -timeout=5 -rss_limit_mb=2048 -print_final_stats=1 \
		-artifact_prefix=$(FUZZ_BUILD)/found/$(T)- $(patsubst %,-dict=%,$(wildcard fuzz/dict/$(T).dict)) \
		$(FUZZ_BUILD)/scratch/$(T) $(wildcard fuzz/corpus/$(T))

$(FUZZ_BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(FUZZ_CC) $(CPPFLAGS) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -c -o $@ $<

$(FUZZ_BUILD)/libguard.a: $(FUZZ_LIB_OBJ)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$(FUZZ_BUILD)/fuzz_%: $(FUZZ_BUILD)/fuzz/fuzz_%.o $(FUZZ_BUILD)/libguard.a
	$(call say,LINK,$@)
	$(Q)$(FUZZ_CC) $(FUZZ_FLAGS) -fsanitize=fuzzer -o $@ $^ $(LDLIBS)

-include $(FUZZ_LIB_OBJ:.o=.d) $(FUZZ_SRC:%.c=$(FUZZ_BUILD)/%.d)
