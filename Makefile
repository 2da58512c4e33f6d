# crewbox: make deps | all | demo | test | lint | install | clean
# Settings that packagers override:
PREFIX  ?= /usr/local
CC      ?= gcc
CFLAGS  ?= -O2 -g
LUA54   ?= lua5.4
LUAJIT  ?= luajit
LUA54_INC ?= $(shell pkg-config --cflags lua5.4 2>/dev/null)
LUA51_INC ?= $(shell pkg-config --cflags lua5.1 2>/dev/null)
BUILD   ?= build
VERSION := 0.1.0

# -Wno-... : none. Every warning here is on because it caught something real in code like this.
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wwrite-strings \
        -Wformat=2 -Wvla -Werror=implicit-function-declaration -Werror=incompatible-pointer-types
ALL_CFLAGS = -std=gnu11 -D_GNU_SOURCE -DCB_VERSION='"$(VERSION)"' -Isrc -fPIC \
             -fvisibility=hidden -pthread $(WARN) $(CFLAGS)
CORE_LIBS  = -lcurl -ljansson -lsqlite3 -lcrypto -lpthread
BOXD_LIBS  = -lmicrohttpd -ljansson -lseccomp -lcrypto -lz -lpthread

# A room is a folder of src/; each program links the rooms it stands on (docs/architecture.md).
room = $(patsubst src/%.c,$(BUILD)/obj/%.o,$(wildcard src/$(1)/*.c))
CORE_OBJ      = $(foreach r,base wire secrets net store tree providers watch,$(call room,$(r)))
BOXD_OBJ      = $(foreach r,base wire boxd,$(call room,$(r)))
INIT_OBJ      = $(foreach r,base wire box,$(call room,$(r)))
SUPERVISE_OBJ = $(foreach r,base wire secrets supervise,$(call room,$(r)))
LUA_SRC       = $(wildcard src/lua/*.c)
MODULES       = $(BUILD)/lua/5.4/crewbox/core.so $(BUILD)/lua/5.1/crewbox/core.so
PROGRAMS      = $(BUILD)/crewboxd $(BUILD)/crewbox-init $(BUILD)/crewbox-supervise $(BUILD)/crewbox
C_TESTS       = $(patsubst spec/c/%_test.c,$(BUILD)/test/%_test,$(wildcard spec/c/*_test.c))
# The rooms of a C test: everything but the mains and the Lua bindings.
MAINS         = $(BUILD)/obj/boxd/main.o $(BUILD)/obj/box/main.o $(BUILD)/obj/supervise/main.o
TEST_ROOMS   ?= base wire secrets net store tree providers watch supervise box boxd
TEST_OBJ      = $(filter-out $(MAINS),$(foreach r,$(TEST_ROOMS),$(call room,$(r))))

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
	$(CC) -shared -Wl,-z,nodelete $(CFLAGS) -o $@ $(filter %.o,$^) $(CORE_LIBS)
$(BUILD)/lua/5.4/crewbox/core.so: $(patsubst src/lua/%.c,$(BUILD)/obj-lua5.4/%.o,$(LUA_SRC))
$(BUILD)/lua/5.1/crewbox/core.so: $(patsubst src/lua/%.c,$(BUILD)/obj-lua5.1/%.o,$(LUA_SRC))

$(BUILD)/crewboxd: $(BOXD_OBJ)
	$(CC) $(CFLAGS) -o $@ $^ $(BOXD_LIBS)
$(BUILD)/crewbox-init: $(INIT_OBJ)
	$(CC) -static $(CFLAGS) -o $@ $^
$(BUILD)/crewbox-supervise: $(SUPERVISE_OBJ)
	$(CC) -static $(CFLAGS) -o $@ $^

# Runnable from the tree: finds its Lua files and its C module where the build left them.
$(BUILD)/crewbox: bin/crewbox
	@mkdir -p $(@D)
	sed -e 's|@ROOT@|$(CURDIR)|g' -e 's|@BUILD@|$(abspath $(BUILD))|g' $< > $@ && chmod +x $@

$(BUILD)/test/%_test: spec/c/%_test.c spec/c/check.h $(TEST_OBJ)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -Ispec -MMD -MP -o $@ $< $(TEST_OBJ) $(CORE_LIBS) $(BOXD_LIBS)

deps:
	sh scripts/deps

demo: deps
	@$(MAKE) --no-print-directory -s all
	@sh examples/demo/run

test: deps
	@$(MAKE) --no-print-directory -s all $(C_TESTS)
	@sh spec/run all

# Narrower sets; each prints the same last line.
test-c: $(C_TESTS)
	@sh spec/run c
test-5.4 test-jit test-kill test-agents: all
	@sh spec/run $(patsubst test-%,%,$@)

lint:
	@sh scripts/lint

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/libexec/crewbox $(DESTDIR)$(PREFIX)/lib/lua/5.4/crewbox \
	  $(DESTDIR)$(PREFIX)/lib/lua/5.1/crewbox $(DESTDIR)$(PREFIX)/share/lua/5.4 $(DESTDIR)$(PREFIX)/share/lua/5.1
	install -m 755 $(BUILD)/crewboxd $(BUILD)/crewbox-init $(BUILD)/crewbox-supervise $(DESTDIR)$(PREFIX)/libexec/crewbox/
	for v in 5.4 5.1; do install -m 755 $(BUILD)/lua/$$v/crewbox/core.so $(DESTDIR)$(PREFIX)/lib/lua/$$v/crewbox/ && \
	  cp -R lua/crewbox $(DESTDIR)$(PREFIX)/share/lua/$$v/ || exit 1; done
	sed -e 's|@ROOT@|$(PREFIX)/share/lua/5.4|g; s|@ROOT@/lua|@ROOT@|g' -e 's|@BUILD@|$(PREFIX)/libexec/crewbox|g' bin/crewbox > $(DESTDIR)$(PREFIX)/bin/crewbox
	chmod 755 $(DESTDIR)$(PREFIX)/bin/crewbox

clean:
	rm -rf $(BUILD)

.PHONY: all deps demo test test-c test-5.4 test-jit test-kill test-agents lint install clean
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
