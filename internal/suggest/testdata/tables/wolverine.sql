-- from: JasperFx/wolverine OutgoingEnvelopeTable.cs
-- want: refused
CREATE TABLE wolverine_outgoing_envelopes (
    id uuid PRIMARY KEY,
    owner_id integer NOT NULL,
    destination varchar NOT NULL,
    deliver_by timestamptz,
    body bytea NOT NULL,
    attempts integer DEFAULT 0,
    message_type varchar NOT NULL);
