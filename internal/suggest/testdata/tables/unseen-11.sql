-- from: made up after hand-written tables of public code: the content is a message in text; the only id beside
-- want: topic=topic key=?incident_id payload=message column=status pending=?PENDING sent=?PUBLISHED attempts=attempts due=next_attempt_at error=last_error sent_at=published_at created=created_at
CREATE TABLE incident_outbox (
    id uuid PRIMARY KEY,
    incident_id uuid NOT NULL,
    topic varchar(100) NOT NULL,
    event_type varchar(30) NOT NULL,
    message text NOT NULL,
    occurred_at timestamptz NOT NULL,
    status varchar(20) NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL,
    last_error text,
    published_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP);
