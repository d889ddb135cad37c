-- from: juntossomosmais/django-outbox-pattern
-- want: topic=?destination key=- payload=body column=status pending=1 sent=2 failed=-1 attempts=retry created=added
CREATE TABLE published (
    id uuid PRIMARY KEY,
    version varchar(100) NOT NULL,
    destination varchar(255) NOT NULL,
    body jsonb NOT NULL,
    added timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    retry integer NOT NULL,
    status integer NOT NULL,
    headers jsonb NOT NULL);
