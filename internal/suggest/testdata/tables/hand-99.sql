-- from: stored public code, index 60068725442: transactional_outbox (organisation_id, outbox_id, state)
-- want: id=organisation_id,outbox_id topic=topic key=? payload=payload_json column=state pending=pending processing=processing sent=sent failed=failed attempts=attempts due=available_at created=created_at
CREATE TABLE transactional_outbox (
    organisation_id text NOT NULL,
    outbox_id text NOT NULL,
    topic text NOT NULL,
    payload_json jsonb NOT NULL,
    correlation_id text NOT NULL,
    state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending','processing','sent','failed')),
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    available_at timestamptz NOT NULL DEFAULT now(),
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organisation_id, outbox_id));
