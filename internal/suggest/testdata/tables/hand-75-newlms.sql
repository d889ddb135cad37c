-- from: melasser22/newLms tenant-platform/tenant-events/src/main/resources/db/migration/common/V7__create_tenant_outbox.sql
-- want: topic=? key=? column=status pending=NEW sent=SENT failed=DEAD attempts=attempts due=available_at created=created_at
CREATE TABLE tenant_outbox (
    id BIGSERIAL PRIMARY KEY,
    tenant_id VARCHAR(64),
    type TEXT NOT NULL,
    payload JSONB NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL,
    version BIGINT NOT NULL,
    available_at TIMESTAMPTZ NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    status TEXT NOT NULL);
CREATE INDEX ON tenant_outbox(status, available_at);
INSERT INTO tenant_outbox (type, payload, created_at, updated_at, version, available_at, status) VALUES
    ('TenantCreated', '{"tenantId":"t"}', now(), now(), 0, now(), 'NEW'),
    ('TenantCreated', '{"tenantId":"t"}', now(), now(), 0, now(), 'SENT'),
    ('TenantCreated', '{"tenantId":"t"}', now(), now(), 0, now(), 'DEAD');
