-- from: made up: an enum whose first label no list of words knows; attempt in the singular
-- want: topic=? key=aggregate_id column=state pending=PREPARED sent=SENT failed=ERROR attempts=attempt error=error created=created_at
CREATE TYPE message_state AS ENUM ('PREPARED', 'SENT', 'ERROR');
CREATE TABLE messages_out (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    aggregate_id text NOT NULL,
    payload jsonb NOT NULL,
    state message_state NOT NULL DEFAULT 'PREPARED',
    attempt smallint NOT NULL DEFAULT 0,
    error text,
    created_at timestamptz NOT NULL DEFAULT now());
