-- from: spring-projects/spring-modulith schemas/v1/schema-postgresql.sql
-- want: profile=modulith topic=? column=null pending=null processing=null sent=null key=?
CREATE TABLE event_publication (
    id UUID NOT NULL,
    listener_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    serialized_event TEXT NOT NULL,
    publication_date TIMESTAMP WITH TIME ZONE NOT NULL,
    completion_date TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (id));
