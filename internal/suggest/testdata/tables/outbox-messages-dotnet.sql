-- from: the outbox_messages of .NET templates
-- want: profile=outbox-messages-dotnet topic=? key=?
CREATE TABLE outbox_messages (
    id uuid PRIMARY KEY,
    type text NOT NULL,
    content jsonb NOT NULL,
    occurred_on_utc timestamptz NOT NULL,
    processed_on_utc timestamptz,
    error text);
