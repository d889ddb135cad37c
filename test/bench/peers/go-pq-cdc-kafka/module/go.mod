module github.com/outbox-cdc/outbox-cdc/test/bench/peers/go-pq-cdc-kafka/module

go 1.26.0

// What it requires is added by `make bench-peers`, to a copy: the newest version, or
// GO_PQ_CDC_KAFKA=v1.2.3. The report says which one it was.
