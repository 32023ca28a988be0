# The targets that both people and CI run. `make help` lists them.
GO      ?= go
BIN     := $(shell $(GO) env GOPATH)/bin
GOLANGCI_LINT_VERSION := v2.15.0
FUZZTIME  ?= 20s
BENCHTIME ?= 1s
COUNT     ?= 50
SEEDS     ?= 20000
MINUTES   ?= 3
# How long one package's tests may take: several times as long as the longest of them, which takes minutes on a slow machine.
TIMEOUT   ?= 30m

# Packages with tests in virtual time (those of ./internal/test/acceptance and of zkr mostly run processes, in real time). They are
# found, not listed, so that none is forgotten.
tests_with = $(sort $(dir $(shell grep -rl --include='*_test.go' --exclude-dir=observe --exclude-dir=cutnet --exclude-dir=gssapi --exclude-dir=start '"$(1)"' .)))
ZKR      = $(call tests_with,github.com/zkrecipes/zkrecipes/internal/test/zkrtest)
VIRTUAL  = $(filter-out ./internal/test/acceptance/ $(ZKR),$(call tests_with,testing/synctest))

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

.PHONY: test
test: ## rings 1 and 2, with a part of what is random or long (processors tries the whole); needs Go and nothing else
	$(GO) test ./...

# In virtual time on one processor: with more, the race detector sometimes crashes, because the threads that run a bubble's timers
# share one of its contexts (Go 1.26).
BUBBLES = $(VIRTUAL) ./internal/test/sim/
# Others have some such tests, beside those of processes.
MIXED   = $(filter-out $(BUBBLES),$(sort $(ZKR) $(call tests_with,testing/synctest) $(call tests_with,github.com/zkrecipes/zkrecipes/internal/test/bubble)))

# The race detector lets a process that ends wait for races of its other goroutines, by default for a second: as long as many tests take.
# It does not look into the wire client, whose CreateContainer and CreateTTL, called while it closes, read an answer that is being decoded.
RACE = GORACE="atexit_sleep_ms=100 $$GORACE" $(GO) test -race -gcflags=github.com/go-zookeeper/zk=-race=false -timeout $(TIMEOUT)

# A pass for each word, in which clients or servers of all recipes' tests are unusual in these ways: internal/test/bubble has them.
UNUSUAL ?= below small-request no-batching no-containers proof-write few-retries short-timeout one-shot
# -short, as in CI: few of what is much alike.
PART    ?=

.PHONY: unusual
unusual: ## the tests of all recipes with unusual clients and servers, a pass for each of UNUSUAL; five minutes
	@set -e; for ways in $(UNUSUAL); do echo "unusual: $$ways"; ZKR_UNUSUAL=$$ways $(GO) test -count=1 -timeout $(TIMEOUT) $(PART) ./recipes/...; done

.PHONY: race
race: race-processes race-virtual ## rings 1 and 2 under the race detector, with few of what is much alike, without what SPIN checks

.PHONY: race-virtual
race-virtual: ## the part of race in virtual time
	$(RACE) -short -cpu 1 $(BUBBLES)

.PHONY: race-library
race-library: ## the part of race-virtual that CI runs: the managed client, how processes close, and the recipes
	$(RACE) -short -cpu 1 $(filter ./internal/managed/% ./internal/closing/ ./recipes/%,$(BUBBLES))

.PHONY: race-processes
race-processes: ## the rest of race, of which most runs processes in real time
	$(RACE) -short $$($(GO) list ./... | grep -vxF "$$($(GO) list $(BUBBLES) $(MIXED) ./models)")
	$(RACE) -short -cpu 1 $(MIXED)

.PHONY: processors
processors: ## all tests, and the whole of what is random or long, on four processors: events of one instant have another order there
	ZKR_WHOLE=1 $(GO) test -count=1 -timeout $(TIMEOUT) -cpu 4 ./...

.PHONY: integration
integration: ## ring 3: against real Apache ZooKeeper (Debian's packages, or ZOOKEEPER_HOME); two packages at a time, since most of their time is waiting
	@[ -n "$$ZKR_CURATOR_HOME" ] || [ -e /usr/share/java/curator-recipes.jar ] && [ -e /usr/share/java/curator-x-discovery.jar ] && command -v javac >/dev/null || \
		echo "skipped: the tests with Apache Curator, which need Debian's libcurator-recipes-java, libcurator-discovery-java and default-jdk-headless"
	@"$${ZKR_PYTHON:-/usr/bin/python3}" -c 'import kazoo' 2>/dev/null || \
		echo "skipped: the tests with Kazoo, which need Debian's python3-kazoo"
	@set -ef; tests=$$($(GO) run ./internal/test/ring3); echo "ring 3: $$tests"; ZKR_REAL=1 $(RERUN) $$tests -- -p 2 -count=1 -timeout $(TIMEOUT)

# Runs go test with real servers. A test that fails is run once more, alone. In CI the target again does that later, when nothing
# else runs: ZKR_LATER names a directory for what it needs to know.
RERUN = $(GO) run ./internal/test/rerun $(addprefix -later ,$(ZKR_LATER))

.PHONY: again
again: ## the tests that ZKR_LATER says have failed, once more, one at a time
	@ZKR_REAL=1 $(GO) run ./internal/test/rerun -again $(ZKR_LATER)

# The newest releases that could be fetched when docs/compatibility.md was last updated.
MATRIX_ZOOKEEPER ?= 3.4.14 3.5.10 debian 3.8.6 3.9.5 zetcd
MATRIX_CURATOR   ?= 5.9.0
MATRIX_KAZOO     ?= 2.11.0

.PHONY: matrix
matrix: ## the recipes and their neighbors on other releases, fetched by Maven and pip; not part of CI
	.ci/matrix "$(MATRIX_ZOOKEEPER)" $(MATRIX_CURATOR) $(MATRIX_KAZOO)

# Under the race detector each random game is drawn GAMES times in a run, instead of a hundred times.
GAMES     ?= 20
RANDOM     = $(call tests_with,pgregory.net/rapid)

.PHONY: soak-virtual
soak-virtual: ## the tests in virtual time, COUNT (50) times without and with the race detector; some hours
	ZKR_WHOLE=1 $(GO) test -count=$(COUNT) -cpu 1,4 -timeout 0 $(VIRTUAL)
	$(RACE) -cpu 1 -count=$(COUNT) -timeout 0 $(filter-out $(RANDOM),$(VIRTUAL))
	$(RACE) -cpu 1 -count=$(COUNT) -timeout 0 $(RANDOM) -rapid.checks=$(GAMES)

.PHONY: soak
soak: ## the simulator with SEEDS (20000) seeds: every recipe under random faults; a failure names its seed
	$(GO) test ./internal/test/sim -count=1 -timeout 0 -run 'TestSeeds$$' -v -sim.seeds=$(SEEDS)

HOURS    ?= 24
SESSIONS ?= 1000

.PHONY: day
day: ## HOURS (24) of virtual time in which SESSIONS (1000) sessions use all recipes, over expiries, restarts and refusals: nothing may be left
	$(GO) test ./internal/test/acceptance -count=1 -timeout 0 -run 'TestADay$$' -v -day.hours=$(HOURS) -day.sessions=$(SESSIONS)

# Which single faults: all, or some, as in CI: one of twelve.
SINGLES ?= all
SINGLES_all  = -faults.every=1
SINGLES_some = -faults.every=12

.PHONY: singles
singles: ## every fault at every step of the smallest scenarios of each recipe; SINGLES=some as in CI
	$(GO) test ./internal/test/faults -count=1 -timeout $(TIMEOUT) -run 'TestSingles$$' -v $(SINGLES_$(SINGLES))

# How long the pairs of each recipe are tried, and how many second faults for each first one. The next run goes on with other first
# faults, until all of SEED were tried.
FAULT_MINUTES ?= 60
FAULT_SECONDS ?= 0

.PHONY: faults
faults: ## every fault at every step of all scenarios, some pairs where asynchronous release replaces a znode, pairs for FAULT_MINUTES (60) per recipe, triples; resumes; names what it leaves out
	$(GO) test ./internal/test/faults -count=1 -timeout 0 -run 'TestSingles$$' -v -faults.every=1 -faults.scenarios=all
	$(GO) test ./internal/test/faults -count=1 -timeout 0 -run 'TestPairs$$' -v -faults.pairs -faults.scenarios='async(-alone)?' -faults.near=12 \
		-faults.seconds=40 -faults.seed=$(SEED)
	@mkdir -p build
	$(GO) test ./internal/test/faults -count=1 -timeout 0 -run 'TestPairs$$' -v -faults.pairs -faults.minutes=$(FAULT_MINUTES) \
		-faults.seconds=$(FAULT_SECONDS) -faults.seed=$(SEED) -faults.record=$(CURDIR)/build/pairs.json
	$(GO) test ./internal/test/faults -count=1 -timeout 0 -run 'TestTriples$$' -v -faults.triples=10000 -faults.seed=$(SEED)

# Which mutants: a regular expression, or few, as in CI.
MUTANTS ?= .

.PHONY: fault-mutants
fault-mutants: ## which faults find the simulator's mutants: single ones, or pairs; an hour
	$(GO) test ./internal/test/faults -count=1 -timeout 0 -run 'TestMutantsAreFound$$' -v -faults.mutants='$(MUTANTS)'

.PHONY: mutants
mutants: ## the simulator with sources in which one thing is broken: it must find each
	$(GO) test ./internal/test/sim -count=1 -timeout 0 -run 'TestMutantsAreFound$$' -v -sim.mutants='$(MUTANTS)'

BOUNDS ?= large

.PHONY: models
models: ## the models: SPIN searches all of their states; needs spin and gcc; BOUNDS=small as in CI
	ZKR_MODELS=$(BOUNDS) $(GO) test ./models -count=1 -timeout 0 -run 'TestModels$$' -v

N    ?= 200
SEED ?= 1

.PHONY: mutate
mutate: ## N (200) faults of SEED (1) in framework and recipes, one at a time: each must fail a test; resumes
	cd internal/test/mutate && ZKR_WHOLE=1 $(GO) run . -n $(N) -seed $(SEED)

.PHONY: session-limit
session-limit: ## one client of three real members with as many ephemeral znodes as it may have, of each kind; then its end
	ZKR_REAL=1 ZKR_WHOLE=1 $(GO) test -count=1 -v -timeout $(TIMEOUT) -run '^TestNoSessionIsTooLargeForItsMembers$$' ./internal/test/acceptance

.PHONY: deaths
deaths: ## processes with a guardian are killed: 500 at once, and writers, some behind a member that has stopped or is far; guardians stop; 20 minutes
	ZKR_REAL=1 ZKR_WHOLE=1 $(GO) test -count=1 -v -timeout $(TIMEOUT) -run '^(TestNothing(Delayed)?IsExecutedLate|TestLateWritesAreFound|TestManyProcesses)$$' ./guardian
	ZKR_WHOLE=1 $(GO) test -count=20 -v -timeout $(TIMEOUT) -run '^TestAStoppedGuardian$$' ./internal/zkr/run

.PHONY: load
load: ## real members fail and are replaced while processes use all recipes; ten minutes
	ZKR_REAL=1 ZKR_WHOLE=1 $(GO) test -count=1 -v -timeout $(TIMEOUT) -run '^(TestMembersFailUnderLoad|TestAllMembersAreReplacedUnderLoad)$$' ./internal/test/acceptance

.PHONY: soak-real
soak-real: ## all recipes on three real members for MINUTES (3), with random faults (ZKR_SEED repeats them)
	ZKR_REAL=1 ZKR_SOAK=$(MINUTES)m $(GO) test -count=1 -v -timeout 0 -run '^TestSoakOnRealMembers$$' ./internal/test/acceptance

.PHONY: cuts
cuts: ## all recipes on three real members whose network is cut, each cut for MINUTES (3); ZKR_NETWORK=relays needs no root
	cd internal/test/cutnet && ZKR_REAL=1 ZKR_CUTS=$(MINUTES)m $(GO) test -count=1 -v -timeout 0 -run '^TestTheNetworkIsCut$$' .

# A loaded machine sometimes lets a test stand still. This does it to every test all the time.
STALLS ?= 25%60ms 4%500ms

.PHONY: stalls
stalls: ## the suites of all recipes with clients that stall at random: finds tests that do not wait for what they need; ten minutes
	@set -e; for each in $(STALLS); do ZKR_STALLS=$$each $(GO) test -count=1 -timeout $(TIMEOUT) ./internal/test/acceptance; done

.PHONY: build
build: ## everything, for this system
	$(GO) build ./...

.PHONY: types
types: ## the types of packages and tests on macOS and Windows; compiles nothing
	$(GO) -C internal/test/typecheck build -o $(CURDIR)/build/typecheck .
	@set -e; for os in darwin windows; do echo "$$os"; build/typecheck GOOS=$$os CGO_ENABLED=0 ./...; done

.PHONY: cross
cross: ## go vet for macOS and Windows; go build with the oldest Go
	@set -e; for os in darwin windows; do \
		echo "GOOS=$$os go vet ./..."; \
		GOOS=$$os CGO_ENABLED=0 $(GO) vet ./...; \
		for module in internal/test/cutnet sasl/gssapi; do (cd $$module && GOOS=$$os CGO_ENABLED=0 $(GO) vet ./...); done; \
	done
	GOTOOLCHAIN=go$$(sed -n 's/^go //p' go.mod) $(GO) build ./...

.PHONY: tools
tools: $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION) ## the linter, built from source at its pinned version (once)

$(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION):
	GOBIN=$(BIN)/.zkr $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	mv $(BIN)/.zkr/golangci-lint $@ && rmdir $(BIN)/.zkr

.PHONY: lint
lint: tools ## golangci-lint, gofumpt included (golangci-lint carries it)
	$(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION) run --allow-parallel-runners ./...

# Go sometimes takes the end of a target's time for a failure ("context deadline exceeded"). An input that has failed is kept, so it
# fails again.
.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (20s) each
	@set -e; for file in $$(grep -rl --include='*_test.go' '^func Fuzz' .); do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$file); do \
			echo "fuzz $$target in $$(dirname $$file)"; \
			one="$(GO) -C $$(dirname $$file) test -run ^$$ -fuzz ^$$target$$ -fuzztime $(FUZZTIME) ."; \
			$$one || $$one; \
		done; \
	done

.PHONY: figures
figures: ## how the managed client is built: files, arrows between them, fields under a mutex
	@$(GO) run ./internal/test/house

.PHONY: map
map: ## internal/managed/MAP.md: each file of the managed client, and what it is for
	@$(GO) run ./internal/test/house -map

.PHONY: bench
bench: ## every benchmark, without tests
	$(GO) test -run '^$$' -bench . -benchtime $(BENCHTIME) -benchmem ./...

.PHONY: check-bench
check-bench: ## bench, a nested module that also measures other makers' locks: it builds, and its tables add up
	cd bench && $(GO) vet ./... && $(GO) test ./...

# A module that compiles a whole OpenTelemetry Collector: CI leaves it to nightly.
COLLECTOR = observe/zkotel/collectortest
LEFT_OUT ?=

# The linter vets: the tests do without.
.PHONY: check-modules
check-modules: tools ## the modules below observe, their example, sasl/gssapi, and those below internal/test: tests, lint
	@set -e; for module in $(filter-out $(addsuffix /go.mod,$(LEFT_OUT)),$(wildcard observe/*/go.mod sasl/*/go.mod observe/*/*/go.mod examples/*/go.mod internal/test/*/go.mod)); do \
		dir=$$(dirname $$module); cd $(CURDIR)/$$dir; echo "$$dir"; \
		if grep -rq --include='*_test.go' testutil/apache .; then \
			(cd $(CURDIR); $(RERUN) -C $$dir ./... -- -vet=off -count=1 -timeout $(TIMEOUT)); \
		else $(GO) test -vet=off -count=1 -timeout $(TIMEOUT) ./...; fi; \
		$(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION) run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./...; \
	done

.PHONY: race-modules
race-modules: ## the modules below observe, and sasl/gssapi, under the race detector, as in race
	@set -e; for module in $(wildcard observe/*/go.mod sasl/*/go.mod); do \
		cd $(CURDIR)/$$(dirname $$module); $(RACE) -short -count=1 -cpu 1 ./...; \
	done

.PHONY: performance
performance: ## measure bench/results and the tables of docs/performance.md again, other libraries included: an hour on an idle machine
	cd bench && $(GO) run . -write ..

.PHONY: performance-counters
performance-counters: ## the part of it that is about discovery, counters and barriers: half an hour, with a million old markers
	cd bench && $(GO) run . -parts services,counters,forgotten,lost,barriers,markers -rounds 5 -for 1s -znodes 1000000 -write ..

.PHONY: performance-caches
performance-caches: ## the part of it that is about caches and presence: 20 minutes
	cd bench && $(GO) run . -parts nodes,caches,creates,outage -write ..

.PHONY: cover
cover: ## coverage of rings 1 and 2 over all packages, per function in cover.out's summary
	$(GO) test -coverpkg=./... -coverprofile=cover.out ./...
	$(GO) tool cover -func=cover.out | tail -1

.PHONY: demo
demo: ## the tour of zkr, which checks itself
	$(GO) run ./cmd/zkr demo

PICTURES ?= build/pictures

.PHONY: pictures
pictures: ## each page of zkr web in PICTURES (build/pictures): wide and on a phone, light and dark, and the dashboard; needs chromium, chromium-driver and prometheus
	@for each in chromium chromedriver prometheus promtool; do command -v $$each >/dev/null || { echo "pictures: no $$each here"; exit 1; }; done
	@mkdir -p $(PICTURES)
	ZKR_PICTURES=$(abspath $(PICTURES)) $(GO) test -count=1 -timeout $(TIMEOUT) -run 'TestPictures$$' ./inspect/page
	cd observe/zkprom && ZKR_PICTURES=$(abspath $(PICTURES)) $(GO) test -count=1 -timeout $(TIMEOUT) -run 'TestPrometheusScrapesAProgramUnderLoad$$/embedded' .

KUBERNETES_VALIDATE := 1.37.0

.PHONY: kubernetes
kubernetes: ## the manifests of examples/deploy against the schemas of Kubernetes 1.29 and the newest; installs Python's kubernetes-validate below build; not part of CI
	@mkdir -p build
	@[ -x build/kubernetes/bin/kubernetes-validate ] || { python3 -m venv build/kubernetes && build/kubernetes/bin/pip install --quiet kubernetes-validate==$(KUBERNETES_VALIDATE); }
	build/kubernetes/bin/kubernetes-validate --strict --kubernetes-version 1.29 examples/deploy/kubernetes/*.yaml
	build/kubernetes/bin/kubernetes-validate --strict examples/deploy/kubernetes/*.yaml
	sed '/# TLS/d; /# SASL/d' examples/deploy/kubernetes/scheduler.yaml >build/kubernetes/plain.yaml
	build/kubernetes/bin/kubernetes-validate --strict build/kubernetes/plain.yaml
	sed '/^      containers:/d; s/initContainers:/containers:/; /restartPolicy:/d' examples/deploy/kubernetes/scheduler.yaml >build/kubernetes/old.yaml
	build/kubernetes/bin/kubernetes-validate --strict --kubernetes-version 1.28 build/kubernetes/old.yaml

VERSION ?=

.PHONY: release
release: ## VERSION=v0.1.0: a commit with all tags of the release, proven as in release-check, and its files in build/dist; publishes nothing
	.ci/release-make $(VERSION)

.PHONY: release-check
release-check: ## makes such a release with its files elsewhere, and a module outside of the repository builds and tests against it; VERSION as above, or what CHANGELOG.md says
	.ci/release-make --check $(VERSION)

.PHONY: ci
ci: ## everything that CI runs, on a Debian machine as root
	.ci/run

# What CI runs in real time or on real servers. A new test: make busy BUSY='go test PACKAGE -run TEST -count=20'.
BUSY ?= .ci/each busy integration "check-modules ZKR_REAL=1 LEFT_OUT=$(COLLECTOR)"

.PHONY: busy
busy: ## what CI runs in real time, or BUSY, beside four processes that spin: what fails is mended, or leaves CI for nightly
	@for i in 1 2 3 4; do while :; do :; done & spins="$$spins $$!"; done; trap "kill $$spins" EXIT; trap "exit 130" INT TERM HUP; $(BUSY)

# What runs in virtual time or searches, and beside it what needs real time: so that is tried on a busy machine, too. Two hours on
# two processors. The targets by themselves try more, and soak-virtual runs again what processors and race have run.
.PHONY: nightly
nightly: ## what CI does not run: the whole of what is random or long, cut networks, other releases; resumes, and ends with a line for each
	ZKR_BROWSER=1 .ci/each nightly processors "soak SEEDS=5000" day unusual models mutants "faults FAULT_MINUTES=1" "fuzz FUZZTIME=10s" \
		-- integration "check-modules ZKR_REAL=1" cross check-bench "race race-modules" load soak-real session-limit deaths pictures kubernetes release-check "cuts MINUTES=1" stalls matrix
