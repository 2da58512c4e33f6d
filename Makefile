# crewbox: make deps | all | demo | test | bench | install | clean | lint | asan | tsan | valgrind | fuzz | coverage
# Settings that packagers override:
PREFIX  ?= /usr/local
CC      ?= gcc
CFLAGS  ?= -O2 -g
LDFLAGS ?=
# The programs that run inside boxes need nothing of the box but its kernel. Empty only in builds
# with sanitizers, which need a dynamic loader (scripts/asan).
STATIC  ?= -static
LUA54   ?= lua5.4
LUAJIT  ?= luajit
LUA54_INC ?= $(shell pkg-config --cflags lua5.4 2>/dev/null)
LUA51_INC ?= $(shell pkg-config --cflags lua5.1 2>/dev/null)
BUILD   ?= build
VERSION := 0.1.0

# -Wno-... : none. Every warning here is on because it caught something real in code like this.
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wwrite-strings \
        -Wformat=2 -Wvla -Werror=implicit-function-declaration -Werror=incompatible-pointer-types
OUR_CFLAGS = -std=gnu11 -D_GNU_SOURCE -DCB_VERSION='"$(VERSION)"' -Isrc -fPIC \
             -fvisibility=hidden -pthread $(WARN)
ALL_CFLAGS = $(OUR_CFLAGS) $(CFLAGS)
CORE_LIBS  = -lcurl -ljansson -lsqlite3 -lcrypto -lm -lpthread
BOXD_LIBS  = -lmicrohttpd -ljansson -lseccomp -lcrypto -lz -lpthread

# A room is a folder of src/; each program links the rooms it stands on (docs/architecture.md).
room = $(patsubst src/%.c,$(BUILD)/obj/%.o,$(wildcard src/$(1)/*.c))
CORE_OBJ      = $(foreach r,base wire secrets net store tree providers watch,$(call room,$(r)))
BOXD_OBJ      = $(foreach r,base wire boxd,$(call room,$(r)))
INIT_OBJ      = $(foreach r,base wire box,$(call room,$(r)))
SUPERVISE_OBJ = $(foreach r,base wire secrets supervise,$(call room,$(r)))
# Boxes may be of the other architecture; their supervisor is built where a compiler for it is.
CROSS_ARCH   := $(if $(filter aarch64,$(shell uname -m)),x86_64,aarch64)
CROSS_CC     ?= $(CROSS_ARCH)-linux-gnu-gcc
CROSS_CFLAGS ?= -O2 -g
SUPERVISE_CROSS = $(if $(shell command -v $(CROSS_CC)),$(BUILD)/crewbox-supervise-$(CROSS_ARCH))
CROSS_OBJ     = $(patsubst $(BUILD)/obj/%,$(BUILD)/obj-$(CROSS_ARCH)/%,$(SUPERVISE_OBJ))
LUA_SRC       = $(wildcard src/lua/*.c)
MODULES       = $(BUILD)/lua/5.4/crewbox/core.so $(BUILD)/lua/5.1/crewbox/core.so
PROGRAMS      = $(BUILD)/crewboxd $(BUILD)/crewbox-init $(BUILD)/crewbox-supervise $(BUILD)/crewbox $(SUPERVISE_CROSS)
C_TESTS       = $(patsubst spec/c/%_test.c,$(BUILD)/test/%_test,$(wildcard spec/c/*_test.c))
# The rooms of a C test: everything but the mains and the Lua bindings. The programs have names in
# common (loops, timers, calls), so a test links the rooms of its own program; of the box, whose
# names clash with the daemon's that drives it, a test of boxes takes what it asks for.
MAINS         = $(BUILD)/obj/boxd/main.o $(BUILD)/obj/box/main.o $(BUILD)/obj/supervise/main.o
test_obj      = $(filter-out $(MAINS),$(foreach r,$(or $(TEST_ROOMS),$(1)),$(call room,$(r))))
TEST_OBJ      = $(call test_obj,base wire secrets net store tree providers watch supervise)
BOXD_TEST_OBJ = $(call test_obj,base wire boxd)
BOX_PARTS     = $(filter-out $(MAINS),$(call room,box))

all: $(MODULES) $(PROGRAMS)

$(BUILD)/obj/%.o: src/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

$(BUILD)/obj-lua5.4/%.o: src/lua/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LUA54_INC) -MMD -MP -c $< -o $@

$(BUILD)/obj-lua5.1/%.o: src/lua/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LUA51_INC) -MMD -MP -c $< -o $@

# -z nodelete: a thread of ours may still be ending when a host closes its Lua state.
$(BUILD)/lua/%/crewbox/core.so: $(CORE_OBJ)
	@mkdir -p $(@D)
	$(CC) -shared -Wl,-z,nodelete $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(CORE_LIBS)
$(BUILD)/lua/5.4/crewbox/core.so: $(patsubst src/lua/%.c,$(BUILD)/obj-lua5.4/%.o,$(LUA_SRC))
$(BUILD)/lua/5.1/crewbox/core.so: $(patsubst src/lua/%.c,$(BUILD)/obj-lua5.1/%.o,$(LUA_SRC))

$(BUILD)/crewboxd: $(BOXD_OBJ)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(BOXD_LIBS)
$(BUILD)/crewbox-init: $(INIT_OBJ)
	$(CC) $(STATIC) $(CFLAGS) $(LDFLAGS) -o $@ $^
$(BUILD)/crewbox-supervise: $(SUPERVISE_OBJ)
	$(CC) $(STATIC) $(CFLAGS) $(LDFLAGS) -o $@ $^

$(BUILD)/obj-$(CROSS_ARCH)/%.o: src/%.c
	@mkdir -p $(@D)
	$(CROSS_CC) $(OUR_CFLAGS) $(CROSS_CFLAGS) -MMD -MP -c $< -o $@
$(BUILD)/crewbox-supervise-$(CROSS_ARCH): $(CROSS_OBJ)
	$(CROSS_CC) -static $(CROSS_CFLAGS) -o $@ $^

# bin/crewbox with its three places filled in: Lua files, C module, programs. $$abi is the shell's.
fill_in = sed -e 's|@LUA_DIR@|$(1)|g' -e 's|@LUA_CDIR@|$(2)|g' -e 's|@LIBEXEC@|$(3)|g' bin/crewbox

# Runnable from the tree: finds its Lua files and its C module where the build left them.
$(BUILD)/crewbox: bin/crewbox Makefile
	@mkdir -p $(@D)
	$(call fill_in,$(CURDIR)/lua,$(abspath $(BUILD))/lua/$$abi,$(abspath $(BUILD))) > $@ && chmod +x $@

$(BUILD)/test/%_test: spec/c/%_test.c spec/c/check.h $(TEST_OBJ)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -Ispec -MMD -MP -o $@ $< $(TEST_OBJ) $(CORE_LIBS) $(BOXD_LIBS)

$(BUILD)/test/bo%_test: spec/c/bo%_test.c spec/c/check.h $(BOXD_TEST_OBJ) $(BUILD)/test/box.a
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -Ispec -MMD -MP -o $@ $< $(BOXD_TEST_OBJ) $(BUILD)/test/box.a $(CORE_LIBS) $(BOXD_LIBS)

$(BUILD)/test/box.a: $(BOX_PARTS)
	@mkdir -p $(@D)
	rm -f $@ && ar rcs $@ $^

# These run the program itself.
$(BUILD)/test/supervise_test $(BUILD)/test/supervise_tree_test: | $(BUILD)/crewbox-supervise

deps:
	@sh scripts/deps

demo: deps
	@$(MAKE) --no-print-directory -q all 2>/dev/null || echo "building (about a minute on two cores the first time)"
	@$(MAKE) --no-print-directory -s all
	@sh examples/demo/run

test:
	@sh scripts/deps test
	@$(MAKE) --no-print-directory -q all $(C_TESTS) 2>/dev/null || echo "building the programs and their tests"
	@$(MAKE) --no-print-directory -s all $(C_TESTS)
	@sh spec/run all

# Narrower sets; each prints the same last line.
test-c: $(C_TESTS) $(PROGRAMS)
	@sh spec/run c
test-5.4 test-jit test-kill test-agents: all
	@sh spec/run $(patsubst test-%,%,$@)

# What the tests alone do not see (docs/how-to/check-memory-and-races.md).
asan tsan valgrind coverage fuzz lint: deps
	@sh scripts/$@

# Where things end up. A rock gives its own folders and is for one Lua.
BINDIR     ?= $(PREFIX)/bin
LIBEXECDIR ?= $(PREFIX)/libexec/crewbox
SHAREDIR   ?= $(PREFIX)/share/lua
LIBDIR     ?= $(PREFIX)/lib/lua

# $(call install_lua,FOLDER): the Lua files, and one that says where the programs are.
define install_lua
	cd lua && find crewbox -name '*.lua' -exec install -D -m 644 '{}' '$(1)/{}' ';'
	printf '%s\n' '-- Written by the installation: where the programs of crewbox are.' \
	  'return { libexec = "$(LIBEXECDIR)" }' > '$(1)/crewbox/installed.lua'
endef

install: all
	install -d '$(DESTDIR)$(LIBEXECDIR)' '$(DESTDIR)$(BINDIR)'
	install -m 755 $(BUILD)/crewboxd $(BUILD)/crewbox-init $(BUILD)/crewbox-supervise $(SUPERVISE_CROSS) '$(DESTDIR)$(LIBEXECDIR)/'
	install -D -m 755 $(BUILD)/lua/5.4/crewbox/core.so '$(DESTDIR)$(LIBDIR)/5.4/crewbox/core.so'
	install -D -m 755 $(BUILD)/lua/5.1/crewbox/core.so '$(DESTDIR)$(LIBDIR)/5.1/crewbox/core.so'
	$(call install_lua,$(DESTDIR)$(SHAREDIR)/5.4)
	$(call install_lua,$(DESTDIR)$(SHAREDIR)/5.1)
	$(call fill_in,$(SHAREDIR)/$$abi,$(LIBDIR)/$$abi,$(LIBEXECDIR)) > '$(DESTDIR)$(BINDIR)/crewbox'
	chmod 755 '$(DESTDIR)$(BINDIR)/crewbox'

# What luarocks calls (crewbox-scm-1.rockspec): the programs and the module for the one Lua whose
# headers are in LUA_INCDIR; then everything into the rock's own folders.
ROCK_OBJ = $(patsubst src/lua/%.c,$(BUILD)/obj-rock/%.o,$(LUA_SRC))
$(BUILD)/obj-rock/%.o: src/lua/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -I$(LUA_INCDIR) -c $< -o $@
rock-build:
	rm -rf $(BUILD)/obj-rock # perhaps made for another Lua
	$(MAKE) --no-print-directory $(PROGRAMS) $(CORE_OBJ) $(ROCK_OBJ)
	$(CC) -shared -Wl,-z,nodelete $(CFLAGS) $(LDFLAGS) -o $(BUILD)/obj-rock/core.so $(ROCK_OBJ) $(CORE_OBJ) $(CORE_LIBS)
rock-install:
	install -d '$(LIBEXECDIR)'
	install -m 755 $(BUILD)/crewboxd $(BUILD)/crewbox-init $(BUILD)/crewbox-supervise $(SUPERVISE_CROSS) '$(LIBEXECDIR)/'
	install -D -m 755 $(BUILD)/obj-rock/core.so '$(ROCK_LIBDIR)/crewbox/core.so'
	install -D -m 755 lua/crewbox/cli/start.lua '$(BINDIR)/crewbox'
	$(call install_lua,$(ROCK_LUADIR))

include bench/rules.mk

clean:
	rm -rf $(BUILD)

.PHONY: all deps demo test test-c test-5.4 test-jit test-kill test-agents \
        asan tsan valgrind coverage fuzz lint install rock-build rock-install clean
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' -type f 2>/dev/null)
