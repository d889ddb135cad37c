-- from: invented, unlike all others
-- want: id=job_no topic=? key=? payload=body_txt column=done pending=N sent=?Y created=made
CREATE TABLE notify_jobs (job_no serial PRIMARY KEY, what varchar(30) NOT NULL, body_txt text NOT NULL, done char(1) NOT NULL DEFAULT 'N', made timestamp NOT NULL DEFAULT now());
INSERT INTO notify_jobs (what, body_txt) VALUES ('sms','{"to":"+49"}'),('mail','{"to":"a@b"}');
