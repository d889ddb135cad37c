-- from: a table that is no outbox
-- want: refused
CREATE TABLE customers (
    id uuid primary key,
    email varchar(320) not null unique,
    full_name varchar(200) not null,
    country_code varchar(2) not null,
    created_at timestamptz not null,
    updated_at timestamptz not null);
