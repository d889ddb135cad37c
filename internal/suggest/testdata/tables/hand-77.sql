-- from: stored public code, index: node-pg-migrate outbox_events ('pending','processing','completed','failed','dead')
-- want: topic=? key=aggregate_id column=status pending=pending,? processing=processing sent=completed failed=dead attempts=attempts due=next_attempt_at created=created_at
CREATE TABLE outbox_events (
    id uuid PRIMARY KEY,
    tenant_id uuid NOT NULL,
    aggregate_type text NOT NULL,
    aggregate_id text NOT NULL,
    event_type text NOT NULL,
    payload jsonb NOT NULL DEFAULT '{}',
    status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending','processing','completed','failed','dead')),
    attempts integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now());
