-- from: rebus-org/Rebus.PostgreSql, the timeout manager's table
-- want: refused
CREATE TABLE timeouts (
    id BIGSERIAL PRIMARY KEY,
    due_time TIMESTAMP WITH TIME ZONE NOT NULL,
    headers bytea NULL,
    body bytea NULL);
