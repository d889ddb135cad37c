-- The im2be platform's outbox, as its public sources describe it.
CREATE TABLE public.outbox (
    aggregate_id   uuid          NOT NULL,
    event_id       uuid          NOT NULL,
    status         varchar(16)   NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'SENT', 'FAILED', 'ARCHIVED')),
    topic          varchar(249)  NOT NULL,
    payload        bytea         NOT NULL,
    schema_version integer       NOT NULL,
    retries        integer       NOT NULL DEFAULT 0,
    last_error     varchar(1000),
    created_at     timestamptz   NOT NULL,
    sent_at        timestamptz,
    record_version bigint        NOT NULL DEFAULT 0,
    trace_parent   varchar(64),
    trace_state    varchar(512),
    PRIMARY KEY (aggregate_id, event_id)
);
CREATE INDEX outbox_status_created_at ON public.outbox (status, created_at);
CREATE TABLE public.shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL);
--- rows
insert into outbox (created_at, last_error, payload, retries, schema_version, sent_at, status, topic, trace_parent, trace_state, record_version, aggregate_id, event_id) values
  (now() - interval '12 s', NULL, '\x0000000007aa', 0, 7, NULL, 'PENDING', 'im2be.orders', '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', 'vendor=a,b=c', 0, '11111111-1111-1111-1111-111111111111', '11111111-1111-1111-1111-000000000001'),
  (now() - interval '11 s', 'timeout', '\x00', 3, 7, NULL, 'PENDING', 'im2be.orders', NULL, NULL, 4, '22222222-2222-2222-2222-222222222222', '22222222-2222-2222-2222-000000000002'),
  (now() - interval '10 s', NULL, '\x01', 0, 7, now(), 'SENT', 'im2be.orders', NULL, NULL, 1, '33333333-3333-3333-3333-333333333333', '33333333-3333-3333-3333-000000000003'),
  (now() - interval '10 s', NULL, '\x01', 10, 7, NULL, 'FAILED', 'im2be.orders', NULL, NULL, 1, '44444444-4444-4444-4444-444444444444', '44444444-4444-4444-4444-000000000004'),
  (now() - interval '10 s', NULL, '\x01', 0, 7, NULL, 'ARCHIVED', 'im2be.orders', NULL, NULL, 1, '55555555-5555-5555-5555-555555555555', '55555555-5555-5555-5555-000000000005'),
  (now() - interval '9 s', NULL, '\x01', 0, 7, NULL, 'PENDING', 'im2be orders', NULL, NULL, 0, '66666666-6666-6666-6666-666666666666', '66666666-6666-6666-6666-000000000006');
