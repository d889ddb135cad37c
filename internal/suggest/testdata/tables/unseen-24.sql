-- from: made up after hand-written tables of public code: an outbox for chats: times are texts, peers are no key for sure
-- want: id=message_id topic=? key=?peer_id order=? published=?none
CREATE TABLE peer_outbox (
    message_id text PRIMARY KEY,
    dedupe_key text NOT NULL UNIQUE,
    peer_id text NOT NULL,
    payload text NOT NULL,
    created_at text NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    acked_at text,
    last_error text,
    next_attempt_at text);
