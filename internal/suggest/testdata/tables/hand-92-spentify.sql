-- from: semotpan/spentify accounts/src/main/resources/db/migration/V0__outboxevent_schema.sql
-- want: profile=debezium
CREATE TABLE outboxevent (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    timestamp TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    aggregatetype VARCHAR(255) NOT NULL,
    aggregateid VARCHAR(255) NOT NULL,
    type VARCHAR(255) NOT NULL,
    payload JSONB NOT NULL);
