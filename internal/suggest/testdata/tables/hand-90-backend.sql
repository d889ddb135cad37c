-- from: WebEngineeringGroupI/backend database/migrate/000005_create_table_domain_events_outbox.up.sql
-- want: topic=? key=? published=?none created=created_at
CREATE TABLE domain_events_outbox (
    id VARCHAR NOT NULL PRIMARY KEY,
    payload jsonb,
    created_at TIMESTAMP DEFAULT now());
