# make demo and make test do all their own set-up; see README.md.
# The targets are described by the comments behind "##".

SHELL := /bin/bash
.DEFAULT_GOAL := help
# Steps share two cores: one after the other, also with -j. What may run at once
# is said by beside.sh.
.NOTPARALLEL:

# Go is often installed outside of root's PATH.
GO ?= $(or $(shell command -v go),$(wildcard /usr/local/go/bin/go),$(error Go is not installed: see https://go.dev/dl/))
STEP := testbed/setup/step.sh
BESIDE := testbed/setup/beside.sh
PACKAGES := testbed/setup/packages.sh

# The binary needs no C compiler; the race detector does.
BUILD := env CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false
# Without the setting every program that ends well under the race detector waits
# a second, and the stories start many.
RACE := env CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 $(GO) test -race

# The lab tier: packages with tests that start guests. They share the machine,
# so one package at a time; make test runs each package once. A machine has one
# ZFS and one set of network namespaces, and who copies its mounts keeps that ZFS
# busy: where two run at once (test-beside), what reaches these stays in one row.
LAB_PACKAGES = $(shell grep -rl --include='*_test.go' SAVEPOINT_LAB . | xargs -r -n1 dirname | sort -u)
OTHER_PACKAGES = $(filter-out $(LAB_PACKAGES),$(shell find . -name '*.go' -not -path '*/testdata/*' | xargs -n1 dirname | sort -u))
LAB_SHARED := ^savepoint/testbed/(zfs|fabric|bench/gemini)( |$$)
LAB_BESIDE = $(shell for p in $(LAB_PACKAGES); do deps=$$($(GO) list -deps -test $$p) && ! grep -qE '$(LAB_SHARED)' <<<"$$deps" && echo $$p; done)
LAB_ALONE = $(filter-out $(LAB_BESIDE),$(LAB_PACKAGES))
LAB_TIMEOUT ?= 30m
FUZZTIME ?= 30s

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## bin/savepoint
	@$(STEP) "build bin/savepoint" $(BUILD) -o bin/savepoint ./cmd/savepoint

.PHONY: demo
demo: setup-demo build ## the whole story on a real virtual machine, from nothing
	@$(STEP) "demo" bin/savepoint demo

.PHONY: test
test: setup-test vet race-others lab-test ## everything with -race: the packages without guests, then those with them

.PHONY: test-beside
test-beside: setup-test vet ## the same, two packages at a time: quicker, but tests that compare times may fail on few cores
	@$(BESIDE) "$(MAKE) --no-print-directory lab-alone" "$(MAKE) --no-print-directory -k lab-beside race-others"

.PHONY: test-fast
test-fast: ## the tests that need no root, network or QEMU
	@$(STEP) "test" $(GO) test ./...

.PHONY: race
race: ## the same with the race detector
	@$(STEP) "test -race" $(RACE) -timeout 40m ./...

.PHONY: lab-test
lab-test: setup-test ## only the packages that have tests with real guests, one at a time
	@$(STEP) "lab tests" $(LAB) $(or $(LAB_PACKAGES),./cmd/...)

LAB = env SAVEPOINT_LAB=1 $(RACE) -count=1 -p 1 -timeout $(LAB_TIMEOUT)
.PHONY: lab-alone lab-beside race-others
lab-alone:
	@$(STEP) "lab tests that share the machine" $(LAB) $(or $(LAB_ALONE),./cmd/...)
lab-beside:
	@$(STEP) "lab tests beside them" $(LAB) $(LAB_BESIDE)
race-others:
	@$(STEP) "test -race" $(RACE) -timeout 40m $(OTHER_PACKAGES)

# Real kills with a real guest: see testbed/chaos. A seed that was printed plays
# the same again: make chaos CHAOS_FLAGS='-chaos.seed=7 -chaos.round=12'
SAVEPOINT_CHAOS_ROUNDS ?= 60
CHAOS_TIMEOUT ?= 180m
CHAOS_FLAGS ?=
CHAOS_STORAGE ?= qcow2
.PHONY: chaos
chaos: setup-test ## SAVEPOINT_CHAOS_ROUNDS (60) transactions with a kill in the middle; CHAOS_STORAGE=zfs: on ZFS
	@$(STEP) "chaos" env SAVEPOINT_LAB=1 SAVEPOINT_CHAOS_ROUNDS=$(SAVEPOINT_CHAOS_ROUNDS) $(GO) test -count=1 -v -run '^TestChaos$(if $(filter zfs,$(CHAOS_STORAGE)),ZFS)$$' -timeout $(CHAOS_TIMEOUT) ./testbed/chaos -args $(CHAOS_FLAGS)

.PHONY: explore
explore: ## every crash schedule and every disguise instead of a selection; takes minutes
	@$(STEP) "explore" env SAVEPOINT_DEEP=1 $(GO) test -count=1 -timeout $(LAB_TIMEOUT) -v -run 'Crash|Disguised' ./orchestrator ./testbed/sim ./policy

.PHONY: stock-test
stock-test: setup-test ## a stock Debian cloud image becomes a template, on real guests; ten minutes without KVM
	@$(STEP) "stock image" env SAVEPOINT_LAB=1 SAVEPOINT_DEEP=1 $(GO) test -count=1 -timeout $(LAB_TIMEOUT) -v -run TestLabStockImage ./orchestrator/template

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (30s)
	@grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sed 's/:func / /' | sort | while read -r file name; do \
		$(STEP) "fuzz $$name" $(GO) test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
	done

# The schema is no part of the repository: the variable names its files, or they
# lie beside the checkout, as for .ci/run.
SAVEPOINT_PVE_APIDATA ?= $(shell realpath -q ../shared/pve/apidata-*.json 2>/dev/null | paste -sd:)
.PHONY: schema-report
schema-report: ## how the lab's API and what savepoint sends compare with the official API schema
	@[ -n "$(SAVEPOINT_PVE_APIDATA)" ] || { echo "SAVEPOINT_PVE_APIDATA names no file; a Proxmox VE node has one: /usr/share/pve-docs/api-viewer/apidata.js"; exit 1; }
	@$(STEP) "schema report" env SAVEPOINT_PVE_APIDATA=$(SAVEPOINT_PVE_APIDATA) $(GO) test -count=1 -v -run 'SchemaReport$$|AgainstTheSchema$$' ./testbed/pve ./proxmox

.PHONY: bench
bench: ## the Go benchmarks
	@$(STEP) "bench" $(GO) test -run '^$$' -bench . -benchmem ./...

# configs/nightly runs it from a timer or in CI. A run that is busier or on other
# hardware than the one before is slower without being worse: NIGHTLY_LIMIT is the
# smallest change that counts.
NIGHTLY_FLAGS ?=
NIGHTLY_LIMIT ?= 0.25
.PHONY: nightly
nightly: modules build ## every experiment, the trend, and what got worse since the run before; NIGHTLY_FLAGS=--quick: in minutes
	@$(STEP) "nightly" testbed/setup/nightly.sh bin/savepoint $(NIGHTLY_LIMIT) $(NIGHTLY_FLAGS)

# The exploration of crashes is made by tests, which fetch nothing when they are
# built in the middle of a measurement.
.PHONY: modules
modules:
	@$(STEP) "modules" $(GO) mod download

.PHONY: lint
lint: vet ## gofmt, vet, and golangci-lint where it is installed
	@files=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$files" ] || { printf 'not formatted; run gofmt -w on:\n%s\n' "$$files"; exit 1; }
	@if command -v golangci-lint >/dev/null; then $(STEP) "golangci-lint" golangci-lint run; \
	else echo "golangci-lint is not installed, skipped (go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@latest)"; fi

.PHONY: vet
vet:
	@$(STEP) "vet" $(GO) vet ./...

.PHONY: clean
clean: ## remove what was built; the lab's state stays (savepoint lab down --purge)
	rm -rf bin
	$(GO) clean -testcache

.PHONY: setup-demo
setup-demo:
	@$(STEP) "packages" $(PACKAGES) demo

.PHONY: setup-test
setup-test:
	@$(STEP) "packages" $(PACKAGES) test
	@$(STEP) "openssh" testbed/setup/openssh.sh bin/openssh
