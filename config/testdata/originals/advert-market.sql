-- advert-market's table, as its public sources describe it, then entries as its
-- repository inserts them.
CREATE TABLE notification_outbox (
    id              bigserial PRIMARY KEY,
    deal_id         uuid,
    idempotency_key varchar(255) NOT NULL UNIQUE,
    topic           varchar(255) NOT NULL,
    partition_key   varchar(255),
    payload         jsonb NOT NULL,
    status          varchar(20) NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'PROCESSING', 'DELIVERED', 'FAILED')),
    retry_count     integer NOT NULL DEFAULT 0,
    version         integer NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL DEFAULT now(),
    processed_at    timestamptz
);
CREATE INDEX idx_notification_outbox_pending ON notification_outbox (created_at) WHERE status = 'PENDING';
CREATE INDEX idx_notification_outbox_processing ON notification_outbox (status, created_at) WHERE status = 'PROCESSING';
--- rows
INSERT INTO notification_outbox (deal_id, idempotency_key, topic, partition_key, payload, status, retry_count, version, created_at) VALUES
  ('6f2c1c4e-6d6c-4c39-9d0a-0d4f4f1b7a11', 'deal-1:1', 'deal.events', '6f2c1c4e-6d6c-4c39-9d0a-0d4f4f1b7a11',
   '{"type":"DEAL_CREATED",   "amount": 1.50, "b": null, "a": "ü"}', 'PENDING', 0, 0, now() - interval '3 s'),
  (NULL, 'deal-1:2', 'deal.events', NULL, '[]', 'PENDING', 2, 3, now() - interval '2 s'),
  (NULL, 'deal-1:3', 'deal.events', 'k', '{}', 'PROCESSING', 0, 1, now() - interval '1 h'),
  (NULL, 'deal-1:4', 'deal.events', 'k', '{}', 'DELIVERED', 0, 1, now() - interval '1 h'),
  (NULL, 'deal-1:6', '', 'k', '{}', 'PENDING', 0, 0, now() - interval '1 s' - interval '1 ms'),
  (NULL, 'deal-1:5', 'deal.events', '', '{"too": "young"}', 'PENDING', 0, 0, now() + interval '500 ms');
