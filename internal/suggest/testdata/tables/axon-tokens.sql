-- from: AxonFramework token_entry
-- want: refused
CREATE TABLE token_entry (
    processor_name varchar(255) NOT NULL,
    segment integer NOT NULL,
    owner varchar(255),
    timestamp varchar(255) NOT NULL,
    token oid,
    token_type varchar(255),
    primary key (processor_name, segment));
