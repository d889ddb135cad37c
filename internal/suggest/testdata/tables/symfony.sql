-- from: symfony/symfony Doctrine transport
-- want: refused
CREATE TABLE messenger_messages (
    id BIGSERIAL,
    body TEXT NOT NULL,
    headers TEXT NOT NULL,
    queue_name VARCHAR(190) NOT NULL,
    created_at TIMESTAMP(0) NOT NULL,
    available_at TIMESTAMP(0) NOT NULL,
    delivered_at TIMESTAMP(0) DEFAULT NULL,
    PRIMARY KEY(id));
