-- from: loadsmart/jaiminho Event
-- want: refused
CREATE TABLE jaiminho_event (
    id bigserial PRIMARY KEY,
    message bytea NOT NULL,
    function bytea,
    kwargs bytea,
    created_at timestamptz NOT NULL,
    sent_at timestamptz,
    encoder varchar(255),
    strategy varchar(100),
    stream varchar(100));
