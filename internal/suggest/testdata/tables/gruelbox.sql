-- from: gruelbox/transaction-outbox DefaultDialect.java
-- want: refused
CREATE TABLE TXNO_OUTBOX (
    id VARCHAR(36) PRIMARY KEY,
    invocation TEXT,
    nextAttemptTime TIMESTAMP(6),
    lastAttemptTime TIMESTAMP(6),
    attempts INT,
    blocked BOOLEAN,
    processed BOOLEAN,
    version INT,
    uniqueRequestId VARCHAR(250) UNIQUE,
    topic VARCHAR(250) NOT NULL DEFAULT '*',
    seq BIGINT);
