# egress-guard. `make help` lists what there is to do.
#
# Objects go to .build/NAME, one folder for each kind of build (plain, or the sanitizers named by SAN), so that switching
# between them rebuilds nothing. Every .c in policy/ and proxy/ is part of the library that all programs link.

SHELL := /bin/bash
.DEFAULT_GOAL := all

SAN ?=
comma := ,
BUILD := .build/$(if $(SAN),$(subst $(comma),-,$(SAN)),plain)
CC ?= gcc
PKGS := libevent_core libevent_extra libevent_pthreads libcares yaml-0.1 libidn2 libsystemd
CFLAGS_USER ?= -O2 -g
WARN := -Wall -Wextra -Werror -Wswitch-enum -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes \
	-Wformat=2 -Wvla -Wundef -Wno-unused-parameter
CPPFLAGS += -D_GNU_SOURCE -I. -Iproxy -Ipolicy $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
CFLAGS_ALL = -std=gnu11 -pthread $(WARN) $(CFLAGS_USER) -fstack-protector-strong -fno-strict-aliasing -MMD -MP \
	$(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all,-D_FORTIFY_SOURCE=2 -fPIE)
LDFLAGS_ALL = $(if $(SAN),-fsanitize=$(SAN),-pie -Wl,-z,relro,-z,now) -pthread
LDLIBS = $(shell pkg-config --libs $(PKGS) 2>/dev/null)

LIB_SRC := $(filter-out proxy/main.c,$(wildcard policy/*.c proxy/*.c proxy/*/*.c))
LIB_OBJ := $(LIB_SRC:%.c=$(BUILD)/%.o)
UNIT_SRC := $(wildcard tests/unit/test_*.c tests/sim/test_*.c)
UNIT_BIN := $(UNIT_SRC:tests/%.c=$(BUILD)/%)

.PHONY: all unit
all: $(BUILD)/egress-guard

$(BUILD)/egress-guard: $(BUILD)/proxy/main.o $(BUILD)/libguard.a
	$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LDLIBS)

$(BUILD)/libguard.a: $(LIB_OBJ)
	rm -f $@ && ar rcs $@ $^

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS_ALL) -c -o $@ $<

$(BUILD)/unit/%: $(BUILD)/tests/unit/%.o $(BUILD)/libguard.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LDLIBS) -lcmocka

$(BUILD)/sim/%: $(BUILD)/tests/sim/%.o $(BUILD)/libguard.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LDLIBS) -lcmocka

unit: $(UNIT_BIN)
	@for t in $(UNIT_BIN); do $$t || exit 1; done

-include $(LIB_OBJ:.o=.d) $(BUILD)/proxy/main.d
