-- from: AxonFramework domain_event_entry
-- want: refused
CREATE TABLE domain_event_entry (
    global_index bigint PRIMARY KEY,
    event_identifier varchar(255) NOT NULL UNIQUE,
    meta_data oid,
    payload oid NOT NULL,
    payload_revision varchar(255),
    payload_type varchar(255) NOT NULL,
    time_stamp varchar(255) NOT NULL,
    aggregate_identifier varchar(255) NOT NULL,
    sequence_number bigint NOT NULL,
    type varchar(255));
