-- The table of Debezium's outbox event router, with its default names.
-- https://debezium.io/documentation/reference/stable/transformations/outbox-event-router.html
CREATE TABLE public.outbox (
    id            uuid         PRIMARY KEY,
    aggregatetype varchar(255) NOT NULL,
    aggregateid   varchar(255) NOT NULL,
    type          varchar(255) NOT NULL,
    payload       jsonb,
    part          integer,
    created_at    timestamptz  NOT NULL DEFAULT clock_timestamp(),
    last_error    text
);
-- What gives it a state, see the profile.
ALTER TABLE public.outbox ADD status varchar(16) NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'SENT', 'FAILED'));
CREATE INDEX outbox_pending ON public.outbox (created_at) WHERE status = 'PENDING';
--- rows
INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload) VALUES
  ('406c07f3-26f0-4eea-a50c-109940064b8f', 'Order', '1', 'OrderCreated', '{"id":1,   "lines": [{"id": 1, "item": "Debezium in Action"}]}'),
  ('406c07f3-26f0-4eea-a50c-109940064b90', 'Order', '', 'OrderDeleted', NULL),
  ('406c07f3-26f0-4eea-a50c-109940064b92', 'Order', '3', '', '""'),
  ('406c07f3-26f0-4eea-a50c-109940064b91', 'no topic', '2', 'OrderCreated', '{}');
