-- from: EventSaucePHP/EventSauce message-outbox/table-schema.md
-- want: topic=? key=payload column=consumed pending=0 sent=1 payload=?payload
CREATE TABLE outbox_messages (
    id bigserial PRIMARY KEY,
    consumed smallint NOT NULL DEFAULT 0,
    payload varchar(16001) NOT NULL);
