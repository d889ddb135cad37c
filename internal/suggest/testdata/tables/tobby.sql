-- from: mageddo/tobby
-- want: refused
CREATE TABLE TTO_RECORD (
    IDT_TTO_RECORD uuid PRIMARY KEY,
    NAM_TOPIC varchar,
    NUM_PARTITION numeric(3),
    IND_STATUS varchar,
    IND_AGENT varchar,
    TXT_KEY text,
    TXT_VALUE text,
    TXT_HEADERS text,
    DAT_CREATED timestamp,
    DAT_SENT timestamp);
