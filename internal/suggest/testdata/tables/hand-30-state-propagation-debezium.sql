-- from: dcano/state-propagation-debezium twba-toolkit-outbox-jpa-postgres/src/main/resources/db/migration/V1.0.0.202404281755__outbox_init.sql
-- want: id=uuid topic=? key=partition_key published=?none
CREATE TABLE outbox (
    uuid varchar(255) not null,
    metadata jsonb not null,
    payload jsonb not null,
    type varchar(1000) not null,
    tenant_id varchar(255),
    epoch bigint not null,
    partition_key varchar(1000),
    partition int4 not null,
    primary key (uuid));
