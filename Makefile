# Everything a contributor runs. `make help` lists it, by groups: a line ##@ begins one.

# renovate: github.com/golangci/golangci-lint/v2
GOLANGCI_VERSION := v2.15.0
# renovate: mvdan.cc/gofumpt
GOFUMPT_VERSION  := v0.12.0
# renovate: golang.org/x/vuln
VULN_VERSION     := v1.8.0
# renovate: github.com/goreleaser/goreleaser/v2
GORELEASER_VERSION := v2.14.3
# renovate: gotest.tools/gotestsum
GOTESTSUM_VERSION := v1.13.0

TOOLS ?= $(CURDIR)/bin
GOLANGCI := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)
GOFUMPT  := $(TOOLS)/gofumpt-$(GOFUMPT_VERSION)
GORELEASER := $(TOOLS)/goreleaser-$(GORELEASER_VERSION)
GOVULNCHECK := $(TOOLS)/govulncheck-$(VULN_VERSION)
GOTESTSUM := $(TOOLS)/gotestsum-$(GOTESTSUM_VERSION)
# Where known vulnerabilities are looked up: the public database, or a copy of it
# (file:///…). VULN_UNREACHABLE=pass: say so and go on where it cannot be reached.
VULN_DB ?= https://vuln.go.dev
VULN_COPY ?= https://vuln.go.dev/vulndb.zip

# The whole suite starts servers of its own; two packages at a time is what a
# small machine can bear, and four tests of each, since most wait. One package's
# limit is generous for slow machines.
TESTFLAGS ?= -p 2 -parallel 4 -timeout 30m
# A server begins with hundreds of small files. In memory, where 8 GiB are free for them,
# they cost the tests a third less of the processor. A TMPDIR of yours stays.
ifeq ($(origin TMPDIR),undefined)
ROOM := $(shell least=$$((8 * 1024 * 1024)); \
  awk -v least=$$least '/^MemAvailable/ { exit $$2 < least }' /proc/meminfo 2>/dev/null && \
  df -Pk /dev/shm 2>/dev/null | awk -v least=$$least 'NR == 2 { exit $$4 < least }' && \
  awk '$$2 == "/dev/shm" { bad = $$4 ~ /noexec|^ro/ } END { exit bad }' /proc/mounts && echo /dev/shm)
endif
# What takes longest begins first.
LONGEST   := ./test/integration ./test/security ./sink ./test/bytes ./test/takeover
# RERUN=1, as in CI: a few tests that fail (four, subtests included) are run again and told apart
# at the end as flaky. Each is a bug to fix, in the test or in the program.
RERUN     ?=
SEEDS     ?= 100000
FUZZTIME  ?= 30s
FUZZTIME_SMALL ?= 5s
DURATION  ?= 90s
# A tag's version, or what follows the newest tag; where there is none, the newest version of CHANGELOG with
# the commit behind it. Packages take no version that begins with a letter, as a commit may.
VERSION   ?= $(patsubst v%,%,$(shell git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null || \
  echo $$(awk '/^## [0-9]/ {print $$2; exit}' CHANGELOG.md)-g$$(git describe --always --dirty 2>/dev/null || echo dev)))

.DEFAULT_GOAL := help

.PHONY: help
help:
	@awk -F ':.*## ' '/^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ What a newcomer needs

.PHONY: demo
demo: ## the program at work, in a minute: needs Go alone (ARGS='--rows 100000 --outage 5s')
	@go run ./cmd/outbox-cdc demo $(ARGS)

# Static, and decided by the commit alone: no paths, no time of the build.
RELEASE_BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=true -ldflags '-s -w -X main.version=$(VERSION)'
# Packages and the image hold the program without the demo and the servers that it starts.
SERVER_TAGS := -tags nodemo

.PHONY: build
build: ## bin/outbox-cdc: needs Go alone, a minute at first
	$(RELEASE_BUILD) -o bin/outbox-cdc ./cmd/outbox-cdc

# gotest runs packages $(1) with flags $(2).
define gotest
	@if [ -z "$(RERUN)" ]; then set -x; go test $(2) $(TESTFLAGS) $(1); exit $$?; fi; \
	  mkdir -p bin; rm -f bin/flaky; \
	  $(GOTESTSUM) --format=pkgname-and-test-fails --rerun-fails=1 --rerun-fails-max-failures=4 --rerun-fails-report=bin/flaky \
	    --packages="$(1)" -- $(2) $(TESTFLAGS); code=$$?; \
	  if [ -s bin/flaky ]; then echo "flaky, or failed twice:"; cat bin/flaky; fi; exit $$code
endef

ifneq ($(ROOM),)
test race integration chaos test-core test-matrix: export TMPDIR := $(ROOM)
endif

.PHONY: test
test: $(if $(RERUN),$(GOTESTSUM)) ## all tests, ten minutes: needs Go; Java 17 and Maven for a real Apache Kafka (to run one: CONTRIBUTING.md)
	$(call gotest,$(LONGEST) ./...,)
	go test -tags failpoints ./internal/failpoint
	go test -tags manual ./cmd/outbox-cdc -run Manual

.PHONY: lint
lint: $(GOLANGCI) $(GOFUMPT) ## what CI says of the code, some minutes; builds golangci-lint and gofumpt at first
	go mod tidy -diff
	cd deploy/packaging && go mod tidy -diff
	go vet ./...
	$(GOLANGCI) run ./...
	@unformatted=$$($(GOFUMPT) -l $$(git ls-files '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "gofumpt -w is due for:" $$unformatted; exit 1; fi

.PHONY: generated
generated: ## after a new option, flag, metric or field: writes the schema and the docs' tables, a minute or two
	go test ./internal/config ./internal/metrics ./test/deploy -count=1 -update
	go test ./internal/preflight ./internal/statestore ./cmd/outbox-cdc -count=1 -run 'UpToDate|Stable' -update
	cd deploy/packaging && go test ./chart -count=1 -update

##@ Tests: parts of them, and longer forms. They start their own servers

# Not of them: suites that run the program as a process of its own, which the race detector
# of the tests does not see, and packages of one goroutine. Whole streams, in which
# these run next to others, are in the tests of cmd/outbox-cdc and internal/demo.
NO_RACES := checkpoint|decoder|sql|internal/(mapping|outbox|status|survey)|test/(arch|bytes|deploy|docs|integration|packages|page|security|shedlock|takeover)
.PHONY: race
race: $(if $(RERUN),$(GOTESTSUM)) ## the short form of all tests under the race detector
	$(call gotest,$$(go list ./... | grep -vE '/($(NO_RACES))$$' | tr '\n' ' '),-race -short)

.PHONY: integration
integration: ## the whole program against real servers, seven minutes
	go test $(TESTFLAGS) -v ./test/integration/...

# Every test has Kafka 4.4 unless it is told otherwise. Versions that are not
# installed are fetched on first use; 19 is there as Debian's package only, or in the PATH.
INSTALLED_19 := $(shell { /usr/lib/postgresql/19/bin/postgres --version || postgres --version; } 2>/dev/null | grep -q 'PostgreSQL. 19' && echo 19)
NOT_ON_19    := $(if $(INSTALLED_19),,; echo "NOT RUN on 19: it is neither in /usr/lib/postgresql nor in the PATH")
POSTGRES_VERSIONS ?= 14 15 16 17 18 $(INSTALLED_19)
KAFKA_VERSIONS    ?= 4.2.0 3.9.1
SPEAKING := ./replication/... ./internal/statestore/... ./internal/tablesql/... ./internal/sweeper/... ./statusupdater/... ./test/integration/... ./test/security/... ./test/bytes/...
# The oldest that is documented, with ZooKeeper: rows through, and restarts.
KAFKA_OLDEST      ?= 2.8.2
# Another one that loses ends of transactions (KAFKA-20734).
KAFKA_LOSING      ?= 4.3.1
# Stream, restart, lost slot, sweep and hand-back, publication, roles, failover, the server's own hand, generated columns.
CORE := ^(TestRowsReachTheTopic|TestCleanRestartsUnderLoadMakeNoDuplicates|TestALostSlotLosesNothing|TestThePublicationIsMadeAgainByHand|TestTheLeastPrivileges|TestAFailoverWithASynchronisedSlot|TestAnIdleSlotTimesOut|TestTheServerWaitsForAStandby|TestTheFirstSlotRaisesTheLevel|TestTheServerForbidsDecoding|TestAStandbysSlotLosesTheLevel|TestAKeyThatIsGenerated)$$
# What Go and SQL read of a row, and what a publication's row filter can have.
CORE_TWINS := Twins|RowFilter
# Settings of roles and database, a schema that everybody may create in, and one
# encoding's bytes.
CORE_STRANGERS := ^(TestSettingsOfRolesAndDatabase|TestAReadersFunctionMarksNoRow|TestTheSameBytesWhicheverWayARowComes)$$/^WIN1252$$

.PHONY: test-core
test-core: ## a few of these on PostgreSQL 14 to 19 and on Kafka from 2.8 on
	@set -e; for v in $(filter-out 15,$(POSTGRES_VERSIONS)); do echo "=== PostgreSQL $$v"; OUTBOX_TEST_POSTGRES=$$v go test -count=1 $(TESTFLAGS) ./test/integration -run '$(CORE)'; \
	  OUTBOX_TEST_POSTGRES=$$v go test -count=1 $(TESTFLAGS) ./internal/tablesql ./replication -run '$(CORE_TWINS)'; \
	  OUTBOX_TEST_POSTGRES=$$v go test -count=1 $(TESTFLAGS) ./test/security ./test/bytes -run '$(CORE_STRANGERS)'; done; \
	for v in $(KAFKA_VERSIONS); do echo "=== Kafka $$v"; OUTBOX_TEST_KAFKA_VERSION=$$v go test -count=1 $(TESTFLAGS) ./test/integration -run '$(CORE)'; done; \
	for v in $(KAFKA_LOSING); do echo "=== Kafka $$v"; OUTBOX_TEST_KAFKA_VERSION=$$v go test -count=1 $(TESTFLAGS) ./sink -run '^TestRealEndsThatAreLost$$'; done; \
	echo "=== Kafka $(KAFKA_OLDEST)"; OUTBOX_TEST_KAFKA_VERSION=$(KAFKA_OLDEST) go test -count=1 $(TESTFLAGS) ./test/integration -run '^(TestRowsReachTheTopic|TestCleanRestartsUnderLoadMakeNoDuplicates)$$'$(NOT_ON_19)

.PHONY: test-matrix
test-matrix: ## all that speaks to servers, on PostgreSQL 14 to 19, Kafka 4.2 and 3.9; more than an hour
	@set -e; for v in $(POSTGRES_VERSIONS); do echo "=== PostgreSQL $$v"; OUTBOX_TEST_POSTGRES=$$v go test -count=1 $(TESTFLAGS) $(SPEAKING); done; \
	for v in $(KAFKA_VERSIONS); do echo "=== Kafka $$v"; OUTBOX_TEST_KAFKA_VERSION=$$v go test -count=1 $(TESTFLAGS) ./sink/... ./test/integration/...; done$(NOT_ON_19)

.PHONY: sim
sim: ## the simulation of the delivery core (SEEDS=100000, or SEED=n for one)
ifdef SEED
	go test ./checkpoint -count=1 -timeout 0 -run 'TestSimulation$$' -v -sim.seed=$(SEED)
else
	go test ./checkpoint -count=1 -timeout 0 -run 'TestSimulation$$' -sim.seeds=$(SEEDS)
endif

# Long forms of package exactlyonce: in make test a few seconds of each are run. WINDOW=6: pairs of faults one after the
# other; RULES=all or names: that each of its rules is needed.
.PHONY: sim-once
sim-once: ## the simulation of exactly-once transactions (SEEDS=100000, or SEED=n, or RULES=all)
ifdef RULES
	OUTBOX_TEST_RULES=$(RULES) go test ./internal/exactlyonce -count=1 -timeout 0 -run 'TestRules$$' -v
	OUTBOX_TEST_LONG=1 go test ./checkpoint -count=1 -timeout 0 -run 'TestOnceRulesMatter$$' -v
else ifdef SEED
	go test ./internal/exactlyonce -count=1 -timeout 0 -run 'TestSimulation$$' -v -sim.seed=$(SEED)
else
	go test ./internal/exactlyonce -count=1 -timeout 0 -run 'TestSimulation$$|TestExhaustive$$' -sim.seeds=$(SEEDS) -sim.window=$(or $(WINDOW),6)
	go test ./checkpoint -count=1 -timeout 0 -run 'TestSimulationOnce$$' -sim.seeds=$(SEEDS)
endif

.PHONY: sim-coverage
sim-coverage: ## code of the delivery core that the simulation does not reach (SEEDS=2000)
	@mkdir -p build
	go test ./checkpoint -count=1 -timeout 0 -run 'TestSimulation$$' -sim.seeds=$(SEEDS) -coverprofile=build/sim.cov
	@go tool cover -func=build/sim.cov | grep -v '100.0%'

# Also: COUNT=100 MUTANT_SEED=7 PART=1/2, EFFORT=3s for each, RESULTS=file to go on with, TRACE=1 to see what survivors
# change; RULES=all or names: that each rule of the core is needed.
.PHONY: mutants
mutants: ## lines and rules of the core that no test holds (RULES=all, or PACKAGE=decoder FILES=parse.go FOR=5m)
	go run ./test/mutants $(if $(RULES),-rules $(RULES)) $(if $(PACKAGE),-package $(PACKAGE)) $(if $(FILES),-file $(FILES)) $(if $(COUNT),-count $(COUNT)) $(if $(MUTANT_SEED),-seed $(MUTANT_SEED)) $(if $(PART),-part $(PART)) $(if $(FOR),-for $(FOR)) $(if $(EFFORT),-effort $(EFFORT)) $(if $(RESULTS),-results $(RESULTS)) $(if $(TRACE),-trace)

.PHONY: bytes
bytes: ## the record of every column type in every encoding, from WAL and table
	OUTBOX_TEST_BYTES=long go test ./test/bytes -count=1 -timeout 0 -v

# SEED=7 repeats a schedule; several: SEED=1,2.
.PHONY: chaos
chaos: ## the whole program under faults at random (DURATION=90s SEED=7)
	OUTBOX_TEST_CHAOS=$(DURATION) OUTBOX_TEST_SEED=$(SEED) go test ./test/integration -count=1 -timeout 0 -v -run '^TestChaos$$'

.PHONY: once
once: ## exactly-once delivery: long tests, three brokers, faults at random (DURATION=90s SEED=7)
	OUTBOX_TEST_LONG=1 go test ./test/integration -count=1 -timeout 0 -v -run '^TestExactlyOnce|^TestAFailoverWithASynchronisedSlot$$'
	go test ./sink -count=1 -timeout 0 -v -run '^TestRealEndsThatAreLost$$'
	OUTBOX_TEST_DELIVERY=exactly_once go test ./test/integration -count=1 -timeout 0 -v -run '^TestThreeBrokers$$'
	for delivery in exactly_once both; do \
		OUTBOX_TEST_DELIVERY=$$delivery OUTBOX_TEST_CHAOS=$(DURATION) OUTBOX_TEST_SEED=$(SEED) go test ./test/integration -count=1 -timeout 0 -v -run '^TestChaos$$' || exit 1; \
	done

.PHONY: soak
soak: ## steady load: does memory, or the number of connections and files, grow? (DURATION=90s)
	OUTBOX_TEST_SOAK=$(DURATION) go test ./test/integration -count=1 -timeout 0 -v -run '^TestSoak$$'

.PHONY: takeover
takeover: ## every takeover page, followed word for word on real servers
	OUTBOX_TEST_LONG=1 go test ./test/takeover -count=1 -timeout 0 -v

.PHONY: alerts
alerts: ## the alerts in their situations: needs promtool (Debian's package prometheus)
	@command -v promtool >/dev/null || { echo "promtool is missing: Debian's package prometheus has it"; exit 1; }
	cd deploy/prometheus && promtool check rules alerts.yaml && promtool test rules alerts_test.yaml

# Not in CI: they fetch packages, and each starts what it needs.
.PHONY: findings
findings: ## findings/ tried again on other software; fetches it (ONLY=connect-json)
	@failed=; for script in findings/$(ONLY)*.sh; do \
	  [ "$$script" != findings/lib.sh ] || continue; \
	  echo "== $$script"; "$$script" || failed="$$failed $$script"; \
	done; [ -z "$$failed" ] || { echo "changed or not run:$$failed"; exit 1; }

# Not in CI: it fetches the libraries.
.PHONY: clients
clients: ## what the clients of docs/consumers.md read, and commit; fetches them (ONLY='franz-go streams')
	test/clients/run.sh $(ONLY)

# What strangers send, by its structure: rows, configurations, HTTP requests,
# brokers' answers, replication frames. The other targets are single parsers.
STRUCTURED := FuzzRows FuzzStructured FuzzPage FuzzAnswers FuzzFrames

# Up to Go 1.26, a target at times ends with "context deadline exceeded" and no failing
# input when its time is over: https://go.dev/issue/75804.
.PHONY: fuzz
fuzz: ## all fuzz targets, four minutes (FUZZTIME=30s each for what strangers send, FUZZTIME_SMALL=5s)
	@set -e; mkdir -p build; for file in $$(git grep -l '^func Fuzz' -- '*_test.go'); do \
	  for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' $$file); do \
	    case ' $(STRUCTURED) ' in *" $$target "*) time=$(FUZZTIME);; *) time=$(FUZZTIME_SMALL);; esac; \
	    failed=; go test ./$$(dirname $$file) -run '^$$' -fuzz "^$$target\$$" -fuzztime $$time -fuzzminimizetime 1s > build/fuzz.log 2>&1 || failed=1; \
	    echo "$$target"; cat build/fuzz.log; \
	    if [ -z "$$failed" ]; then continue; fi; \
	    if grep -q 'Failing input written' build/fuzz.log || ! grep -q '^ *context deadline exceeded$$' build/fuzz.log; then \
	      git ls-files -o -- '*/testdata/fuzz/*' | xargs -r tail -v -n +1; exit 1; \
	    fi; \
	    echo "$$target found nothing: Go ended it late"; \
	  done; \
	done

##@ Speed, on a quiet machine

.PHONY: bench
bench: ## rows per second, latency, memory, cost (ONLY=B1,B2 ROWS=1000000 ROUNDS=3 OUT=bench.json)
	OUTBOX_BENCH=1 BENCH_ONLY='$(ONLY)' BENCH_ROWS='$(ROWS)' BENCH_ROUNDS='$(ROUNDS)' BENCH_WARM_UP='$(WARM_UP)' BENCH_REPEATS='$(REPEATS)' BENCH_KAFKA='$(KAFKA)' \
	  BENCH_IDLE_SECONDS='$(IDLE_SECONDS)' BENCH_OUTAGE_SECONDS='$(OUTAGE_SECONDS)' BENCH_OUT='$(abspath $(or $(OUT),bench.json))' \
	  go test -count=1 -timeout 0 -v -run '^TestBench$$' ./test/bench

.PHONY: bench-peers
bench-peers: ## the same of Debezium's router and go-pq-cdc-kafka (ROWS=1000000 ROUNDS=3 OUT=bench-peers.json)
	OUTBOX_BENCH=peers BENCH_ONLY='$(ONLY)' BENCH_ROWS='$(ROWS)' BENCH_ROUNDS='$(ROUNDS)' BENCH_REPEATS='$(REPEATS)' BENCH_SECONDS='$(SECONDS_EACH)' \
	  BENCH_GO_PQ_CDC_KAFKA='$(GO_PQ_CDC_KAFKA)' BENCH_OUT='$(abspath $(or $(OUT),bench-peers.json))' \
	  go test -count=1 -timeout 0 -v -run '^TestBenchPeers$$' ./test/bench

.PHONY: bench-record
bench-record: ## writes the docs' figures from bench.json and bench-peers.json
	BENCH_RECORD='$(abspath $(or $(BARS),bench.json))' BENCH_RECORD_PEERS='$(abspath $(or $(PEERS),bench-peers.json))' go test -count=1 -run '^TestRecord$$' ./test/bench

.PHONY: microbench
microbench: ## the micro benchmarks, for benchstat (COUNT=1)
	go test -run '^$$' -bench . -benchmem -count $(or $(COUNT),1) $$(git grep -l '^func Benchmark' -- '*_test.go' | xargs -r -n1 dirname | sort -u | sed 's|^|./|')

##@ Documentation, and the page

.PHONY: site
site: build/site-tools/bin/mkdocs ## the website, in build/site: needs Python 3.9 (ARGS=serve to look at it)
	NO_MKDOCS_2_WARNING=1 build/site-tools/bin/mkdocs $(or $(ARGS),build) -f deploy/site/mkdocs.yml

build/site-tools/bin/mkdocs: deploy/site/requirements.txt
	python3 -m venv build/site-tools
	build/site-tools/bin/pip install --quiet --disable-pip-version-check -r deploy/site/requirements.txt
	touch $@

.PHONY: page-pictures
page-pictures: ## the page in six situations, desktop and phone, light and dark, in bin/artefacts: needs Chromium
	OUTBOX_TEST_ARTEFACTS='$(CURDIR)/bin/artefacts' OUTBOX_TEST_BROWSER=required OUTBOX_TEST_LONG=1 go test -count=1 -v -run '^TestSituations$$' ./test/page

.PHONY: screenshots
screenshots: ## the pictures of the docs: needs Chromium
	OUTBOX_SCREENSHOTS='$(CURDIR)/docs/images' OUTBOX_TEST_BROWSER=required go test -count=1 -v -run '^TestScreenshots$$' ./test/page

##@ Code

.PHONY: fmt
fmt: $(GOFUMPT) ## format all Go files
	$(GOFUMPT) -w $$(git ls-files '*.go')

.PHONY: vuln
vuln: $(GOVULNCHECK) ## known vulnerabilities that our code can reach (VULN_DB=file:///… for a copy)
	@out=$$($(GOVULNCHECK) -db $(VULN_DB) ./... 2>&1); rc=$$?; echo "$$out"; \
	  case "$$rc $$out" in \
	    1*"fetching vulnerabilities"*) echo "NOT CHECKED for vulnerabilities: $(VULN_DB) cannot be reached"; \
	      [ "$(VULN_UNREACHABLE)" = pass ];; \
	    *) exit $$rc;; \
	  esac

# For a run by the clock: it fails where no copy of the database can be had.
.PHONY: vuln-scheduled
vuln-scheduled: ## the same, and fails where the database cannot be had
	rm -rf build/vulndb && mkdir -p build/vulndb
	curl --fail --silent --show-error --location --max-time 300 --output build/vulndb.zip $(VULN_COPY)
	cd build/vulndb && unzip -q ../vulndb.zip
	$(MAKE) vuln VULN_DB=file://$(CURDIR)/build/vulndb VULN_UNREACHABLE=fail

##@ Release

# What a release was built from, for its attestation (SLSA provenance 1.0).
REPOSITORY := git+https://github.com/outbox-cdc/outbox-cdc
.PHONY: provenance
provenance:
	@mkdir -p build
	@printf '{"buildDefinition": {"buildType": "%s/blob/main/.goreleaser.yaml", "externalParameters": {"version": "%s"}, "internalParameters": {"go": "%s", "goreleaser": "%s"}, "resolvedDependencies": [{"uri": "%s", "digest": {"gitCommit": "%s"}}]}, "runDetails": {"builder": {"id": "%s/blob/main/Makefile#release"}}}\n' \
	  '$(REPOSITORY:git+%=%)' '$(VERSION)' "$$(go env GOVERSION)" '$(GORELEASER_VERSION)' '$(REPOSITORY)' "$$(git rev-parse HEAD)" '$(REPOSITORY:git+%=%)' >build/provenance.json

# What packages hold besides the program, for build/.
.PHONY: package-assets
package-assets:
	rm -rf build/man build/completions && mkdir -p build/completions
	$(RELEASE_BUILD) $(SERVER_TAGS) -o build/host/outbox-cdc ./cmd/outbox-cdc
	$(RELEASE_BUILD) -tags manual -o build/host/manual ./cmd/outbox-cdc
	build/host/manual man --dir build/man && gzip -9n build/man/*.1
	build/host/outbox-cdc completion bash >build/completions/outbox-cdc.bash
	build/host/outbox-cdc completion zsh >build/completions/_outbox-cdc
	build/host/outbox-cdc completion fish >build/completions/outbox-cdc.fish

.PHONY: packages
packages: package-assets ## .deb and .rpm of this machine's architecture, in dist/
	cd deploy/packaging && go run ./sbom -binary ../../build/host/outbox-cdc -version $(VERSION) -dir ../../build/sbom/packages-linux-$$(go env GOARCH)
	cd deploy/packaging && go run ./nfpm -binary ../../build/host/outbox-cdc -version $(VERSION) -out ../../dist

# Everything in the image, for one architecture. ARCH is a name that environments
# already have for other things.
IMAGE_ARCH   ?= $(shell go env GOARCH)
IMAGE_ROOT   ?= build/image/$(IMAGE_ARCH)
CERTIFICATES ?= /etc/ssl/certs/ca-certificates.crt
.PHONY: image-root
image-root:
	rm -rf $(IMAGE_ROOT) && mkdir -p $(addprefix $(IMAGE_ROOT)/,usr/bin usr/share/doc/outbox-cdc etc/ssl/certs etc/outbox-cdc)
	GOOS=linux GOARCH=$(IMAGE_ARCH) $(RELEASE_BUILD) $(SERVER_TAGS) -o $(IMAGE_ROOT)/usr/bin/outbox-cdc ./cmd/outbox-cdc
	cd deploy/packaging && go run ./sbom -binary $(abspath $(IMAGE_ROOT))/usr/bin/outbox-cdc -version $(VERSION) -dir $(abspath $(IMAGE_ROOT))/usr/share/doc/outbox-cdc
	install -m 644 LICENSE $(IMAGE_ROOT)/usr/share/doc/outbox-cdc/copyright
	install -m 644 $(CERTIFICATES) $(IMAGE_ROOT)/etc/ssl/certs/ca-certificates.crt
	echo 'outbox-cdc:x:65532:65532::/:/sbin/nologin' >$(IMAGE_ROOT)/etc/passwd
	echo 'outbox-cdc:x:65532:' >$(IMAGE_ROOT)/etc/group

# As root without a container engine: STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot make image.
# To publish it: make image-push IMAGE=registry.example/outbox-cdc.
IMAGE     ?= outbox-cdc
PLATFORMS ?= amd64 arm64
BUILDAH   ?= buildah
# A tag has no +, which a version may have; helm writes _, too.
IMAGE_TAG  = $(subst +,_,$(VERSION))
.PHONY: image
image: ## the container image for amd64 and arm64, and dist/outbox-cdc-image.tar: needs buildah
	@command -v $(firstword $(BUILDAH)) >/dev/null || { echo "buildah is missing: Debian's package buildah has it"; exit 1; }
	@for arch in $(PLATFORMS); do $(MAKE) --no-print-directory image-root IMAGE_ARCH=$$arch VERSION=$(VERSION) || exit 1; done
	@$(BUILDAH) manifest rm $(IMAGE):$(IMAGE_TAG) >/dev/null 2>&1 || true
	@for arch in $(PLATFORMS); do \
	  $(BUILDAH) build --platform linux/$$arch --manifest $(IMAGE):$(IMAGE_TAG) --build-context build=$(CURDIR)/build --file deploy/docker/Dockerfile \
	    --build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD) --timestamp $$(git log -1 --format=%ct) --identity-label=false . || exit 1; \
	done
	@mkdir -p dist && rm -rf build/oci
	$(BUILDAH) manifest push --all $(IMAGE):$(IMAGE_TAG) oci:build/oci:$(IMAGE):$(IMAGE_TAG)
	cd deploy/packaging && go run ./image -layout ../../build/oci
	tar -C build/oci --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf dist/outbox-cdc-image.tar blobs index.json oci-layout

# The image with its bills of materials, as they are in the archive.
.PHONY: image-push
image-push: image
	cd deploy/packaging && go run ./image -layout ../../build/oci -push $(IMAGE):$(IMAGE_TAG) >../../dist/outbox-cdc-image.pushed

# The chart of the same version, for helm install oci://…: make chart-push CHARTS=oci://registry.example/charts VERSION=1.2.3
.PHONY: chart-push
chart-push:
	helm package deploy/helm/outbox-cdc --version $(VERSION) --app-version $(VERSION) --destination dist
	helm push dist/outbox-cdc-$(VERSION).tgz $(CHARTS)

# All of a tag's release: a draft with archives and packages, image and chart, signed without a key.
.PHONY: release
release: $(GORELEASER) ## a draft of a tag's release (VERSION=1.2.3 IMAGE=… CHARTS=oci://…)
	$(GORELEASER) release --clean
	$(MAKE) image-push chart-push
	cosign sign --yes --recursive "$$(cat dist/outbox-cdc-image.pushed)"
	cosign attest --yes --type=slsaprovenance1 --predicate=build/provenance.json "$$(cat dist/outbox-cdc-image.pushed)"
	cosign sign --yes $(CHARTS:oci://%=%)/outbox-cdc:$(IMAGE_TAG)

# As root, with sudo, rpm and systemd installed: packages are installed on a copy
# of this machine. OUTBOX_TEST_PACKAGES=required makes what is missing a failure;
# OUTBOX_TEST_LONG=1 builds a second time with nothing compiled before.
.PHONY: package-test
package-test: ## packages, chart, compose file, and docs/install.md followed under a systemd: needs root
	cd deploy/packaging && go vet ./... && go test -timeout 10m ./...
	OUTBOX_TEST_PACKAGES=$(or $(OUTBOX_TEST_PACKAGES),1) go test -count=1 -timeout 30m -v ./test/packages

.PHONY: chart-test
chart-test: ## the Helm chart: lint, rendering, values
	cd deploy/packaging && go test ./chart

.PHONY: release-check
release-check: $(GORELEASER) ## .goreleaser.yaml is right; builds goreleaser at first, five minutes
	$(GORELEASER) check

.PHONY: release-snapshot
release-snapshot: $(GORELEASER) ## archives, packages and checksums of this commit, in dist/
	VERSION=$(VERSION) $(GORELEASER) release --snapshot --clean --skip=sign
	OUTBOX_TEST_PACKAGES=$(or $(OUTBOX_TEST_PACKAGES),1) OUTBOX_TEST_DIST=$(CURDIR)/dist go test -count=1 -v -run '^TestArchive' ./test/packages

##@ Other

.PHONY: clean
clean: ## remove bin, build and dist
	rm -rf bin build dist

# A tool that is on the machine in the right version is linked to; otherwise it
# is built. Its version is in its name, so a new one is installed by itself.
define install_tool
	@mkdir -p $(TOOLS)
	@have=$$(PATH="$$PATH:$$(go env GOPATH)/bin" command -v $(1) || true); \
	  if [ -n "$$have" ] && "$$have" $(2) 2>/dev/null | grep -qF "$(patsubst v%,%,$(3))"; then ln -sf "$$have" $@; \
	  else echo "installing $(1) $(3)"; GOBIN=$(TOOLS)/.new go install $(4)@$(3) && mv $(TOOLS)/.new/$(1) $@; fi
endef

$(GOLANGCI):
	$(call install_tool,golangci-lint,version,$(GOLANGCI_VERSION),github.com/golangci/golangci-lint/v2/cmd/golangci-lint)

$(GORELEASER):
	$(call install_tool,goreleaser,--version,$(GORELEASER_VERSION),github.com/goreleaser/goreleaser/v2)

$(GOFUMPT):
	$(call install_tool,gofumpt,--version,$(GOFUMPT_VERSION),mvdan.cc/gofumpt)

$(GOVULNCHECK):
	$(call install_tool,govulncheck,-version,$(VULN_VERSION),golang.org/x/vuln/cmd/govulncheck)

$(GOTESTSUM):
	$(call install_tool,gotestsum,--version,$(GOTESTSUM_VERSION),gotest.tools/gotestsum)
