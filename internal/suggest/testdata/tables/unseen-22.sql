-- from: made up after hand-written tables of public code: payload and body: the payload it is
-- want: topic=? key=stream_id column=is_published pending=false sent=true created=recorded_at
CREATE TABLE journal_out (
    id uuid PRIMARY KEY,
    stream_id uuid NOT NULL,
    event_name text NOT NULL,
    payload jsonb NOT NULL,
    data jsonb,
    is_published boolean NOT NULL DEFAULT false,
    recorded_at timestamptz NOT NULL DEFAULT now());
