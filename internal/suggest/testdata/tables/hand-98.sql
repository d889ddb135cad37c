-- from: stored public code, index 71333398060: transactional_outbox (session_id, user_id, domain over jsonb)
-- want: topic=? key=?session_id column=status pending=pending sent=published failed=failed sent_at=published_at attempts=attempts created=created_at
CREATE TABLE transactional_outbox (
    id UUID PRIMARY KEY,
    session_id UUID NOT NULL,
    user_id UUID NOT NULL,
    aggregate_revision INTEGER NOT NULL CHECK (aggregate_revision >= 0),
    event_type TEXT NOT NULL,
    payload jsonb NOT NULL CHECK (jsonb_typeof(payload)='object'),
    status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending','published','failed')),
    attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    published_at TIMESTAMPTZ,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    CHECK (status<>'published' OR published_at IS NOT NULL));
