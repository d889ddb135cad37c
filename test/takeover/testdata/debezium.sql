-- The table of Debezium's outbox event router, with its default names.
-- https://debezium.io/documentation/reference/stable/transformations/outbox-event-router.html
CREATE TABLE public.outbox (
    id            uuid         PRIMARY KEY,
    aggregatetype varchar(255) NOT NULL,
    aggregateid   varchar(255) NOT NULL,
    type          varchar(255) NOT NULL,
    payload       jsonb
);
