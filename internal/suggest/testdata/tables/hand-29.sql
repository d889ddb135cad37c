-- from: stored public code, index: "topic TEXT NOT NULL, data JSONB NOT NULL, inserted_at"
-- want: topic=topic key=? payload=data published=?none created=inserted_at
CREATE TABLE outbox (
    id BIGSERIAL PRIMARY KEY,
    topic TEXT NOT NULL,
    data JSONB NOT NULL,
    inserted_at TIMESTAMPTZ NOT NULL);
