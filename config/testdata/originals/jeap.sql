-- jEAP's DDL, as its documentation gives it (Database schema & migrations), then
-- messages in the states that its library leaves them in.
CREATE SEQUENCE deferred_message_sequence START WITH 1 INCREMENT 1;
CREATE TABLE deferred_message
(
id bigint PRIMARY KEY,
message bytea NOT NULL,
"key" bytea,
cluster_name varchar,
topic varchar NOT NULL,
message_id varchar NOT NULL,
message_idempotence_id varchar NOT NULL,
message_type_name varchar NOT NULL,
message_type_version varchar,
created timestamp with time zone NOT NULL,
send_immediately boolean,
schedule_after timestamp with time zone,
sent_immediately timestamp with time zone,
sent_scheduled timestamp with time zone,
failed timestamp with time zone,
fail_reason varchar,
resend boolean DEFAULT FALSE,
trace_id_high bigint,
trace_id bigint,
span_id bigint,
parent_span_id bigint,
trace_id_string varchar,
sampled boolean
);
CREATE INDEX deferred_message_created ON deferred_message (created);
CREATE INDEX deferred_message_send_immediately ON deferred_message (send_immediately);
CREATE INDEX deferred_message_schedule_after ON deferred_message (schedule_after);
CREATE INDEX deferred_message_sent_immediately ON deferred_message (sent_immediately);
CREATE INDEX deferred_message_sent_scheduled ON deferred_message (sent_scheduled);
CREATE INDEX deferred_message_failed ON deferred_message (failed);
CREATE INDEX deferred_message_resend ON deferred_message (resend);
CREATE TABLE shedlock
(
name VARCHAR(64) NOT NULL,
lock_until TIMESTAMP NOT NULL,
locked_at TIMESTAMP NOT NULL,
locked_by VARCHAR(255) NOT NULL,
PRIMARY KEY (name)
);
--- rows
INSERT INTO deferred_message (cluster_name, created, fail_reason, failed, "key", message, message_id, message_idempotence_id, message_type_name,
  message_type_version, parent_span_id, resend, sampled, schedule_after, send_immediately, sent_immediately, sent_scheduled, span_id, topic,
  trace_id, trace_id_high, trace_id_string, id)
VALUES
  (NULL, now() - interval '1 min', NULL, NULL, '\x00ff'::bytea, '\x0000000001aa'::bytea, 'm-1', 'i-1', 'OrderCreatedEvent', '1.0.0',
   1, false, true, NULL, false, NULL, NULL, -2, 'jme-order-created', 81985529216486895, -81985529216486896, 'fedcba98765432100123456789abcdef', 1),
  (' ', now() - interval '1 min', NULL, NULL, NULL, ''::bytea, 'm-2', 'i-2', 'OrderCreatedEvent', NULL,
   NULL, false, NULL, NULL, false, NULL, NULL, NULL, 'jme-order-created', NULL, NULL, NULL, 2),
  ('other', now() - interval '1 min', NULL, NULL, 'k', 'late', 'm-3', 'i-3', 'OrderCreatedEvent', NULL,
   NULL, false, false, now() - interval '30 s', true, NULL, NULL, 5, 'jme-order-created', 4, NULL, NULL, 3),
  (NULL, now(), NULL, NULL, 'k', 'the writer sends it', 'm-4', 'i-4', 'OrderCreatedEvent', NULL,
   NULL, false, NULL, now() + interval '1 h', true, NULL, NULL, NULL, 'jme-order-created', NULL, NULL, NULL, 4),
  (NULL, now(), NULL, NULL, 'k', 'the writer sent it', 'm-5', 'i-5', 'OrderCreatedEvent', NULL,
   NULL, false, NULL, now() - interval '1 h', true, now(), NULL, NULL, 'jme-order-created', NULL, NULL, NULL, 5),
  (NULL, now() - interval '1 h', 'INVALID_TOPIC', now(), 'k', 'failed', 'm-6', 'i-6', 'OrderCreatedEvent', NULL,
   NULL, false, NULL, NULL, false, NULL, NULL, NULL, 'jme-order-created', NULL, NULL, NULL, 6),
  (NULL, now() - interval '1 h', 'INVALID_TOPIC', now(), 'k', 'failed, to be sent again', 'm-7', 'i-7', 'OrderCreatedEvent', NULL,
   NULL, true, NULL, NULL, false, NULL, NULL, NULL, 'jme-order-created', NULL, NULL, NULL, 7),
  ('gone', now() - interval '1 h', NULL, NULL, 'k', 'sent, to be sent again', 'm-8', 'i-8', 'OrderCreatedEvent', NULL,
   NULL, true, NULL, NULL, true, now(), NULL, NULL, 'not a topic!', NULL, NULL, NULL, 8);
