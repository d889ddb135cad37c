-- from: made up after hand-written tables of public code: an epoch, and nothing else says what was sent
-- want: topic=topic key=? published=?none
CREATE TABLE clicks_outbox (
    id uuid PRIMARY KEY,
    topic text NOT NULL,
    payload jsonb NOT NULL,
    created_at bigint NOT NULL,
    sent_at bigint);
