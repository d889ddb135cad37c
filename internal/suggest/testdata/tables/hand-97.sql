-- from: stored public code, index 69494880665: transactional_outbox of a bank (is_published)
-- want: topic=? key=aggregate_id column=is_published pending=false sent=true created=created_at
CREATE TABLE transactional_outbox (
    id bigint not null,
    aggregate_type varchar(50) not null,
    aggregate_id bigint not null,
    payload text not null,
    is_published boolean not null,
    created_at timestamp(6) not null,
    primary key (id));
