-- from: the default columns that Debezium documents for its outbox extension for Quarkus
-- want: profile=debezium
CREATE TABLE OutboxEvent (
    id uuid NOT NULL,
    aggregatetype varchar(255) NOT NULL,
    aggregateid varchar(255) NOT NULL,
    type varchar(255) NOT NULL,
    timestamp timestamp NOT NULL,
    payload varchar(8000),
    tracingspancontext varchar(256),
    PRIMARY KEY (id));
