-- from: chernyshewww/console-parcels console-parcels/src/main/resources/db/migration/V0.5__CREATE_OUTBOX_TABLE.sql
-- want: topic=? key=? published=?none created=created_at
CREATE TABLE outbox (
    id BIGSERIAL PRIMARY KEY,
    message_type VARCHAR(255) NOT NULL,
    payload text NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT CURRENT_TIMESTAMP,
    owner VARCHAR(255) NOT NULL);
