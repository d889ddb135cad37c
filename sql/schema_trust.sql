-- Returns the reasons why this session must not use schema outbox_cdc, one per row: other people's code would
-- run with the rights of this role. The question matters for an administrator ($1), and for every superuser,
-- whichever role it has taken on: code that runs there can go back to the role that logged in. This statement
-- does not read the tables themselves, because they may be views.
WITH asked AS MATERIALIZED (
    SELECT $1::boolean OR bool_or(rolsuper) AS strict, bool_or(rolsuper AND rolname = session_user) AS super
    FROM pg_roles WHERE rolname IN (current_user, session_user)
), ours AS (
    SELECT n.oid AS object, 'schema outbox_cdc' AS named, n.nspowner AS owner, 'n' AS kind, NULL::oid AS relation
    FROM pg_namespace n, asked WHERE asked.strict AND n.nspname = 'outbox_cdc'
  UNION ALL
    SELECT c.oid, 'outbox_cdc.' || c.relname::text, c.relowner, c.relkind::text, c.oid
    FROM asked, pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE asked.strict AND n.nspname = 'outbox_cdc' AND c.relname IN ('leader', 'park', 'tally', 'tally_unit', 'tally_left')
), part AS (
    SELECT o.relation, o.named, 'pg_class'::regclass::oid AS class, o.relation AS object FROM ours o WHERE o.relation IS NOT NULL
  UNION
    SELECT o.relation, o.named, d.classid, d.objid
    FROM ours o JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = o.relation
)
SELECT o.named || ' belongs to role ' || quote_ident(r.rolname::text)
FROM asked, ours o JOIN pg_roles r ON r.oid = o.owner
WHERE NOT r.rolsuper AND r.rolname <> session_user AND (r.rolname <> current_user OR asked.super)
UNION ALL
-- $2: the schema has to exist. The word 'missing' says that it does not. Objects that are made in the meantime
-- are not trusted.
SELECT 'missing' FROM asked WHERE $2::boolean AND asked.strict AND NOT EXISTS (SELECT FROM ours)
UNION ALL
SELECT o.named || ' is no plain table' FROM ours o WHERE o.kind NOT IN ('n', 'r')
UNION ALL
SELECT o.named || ' has the trigger ' || quote_ident(t.tgname::text) FROM ours o JOIN pg_trigger t ON t.tgrelid = o.relation
UNION ALL
SELECT o.named || ' has the rule ' || quote_ident(w.rulename::text) FROM ours o JOIN pg_rewrite w ON w.ev_class = o.relation WHERE o.kind = 'r'
UNION ALL
SELECT o.named || ' has the policy ' || quote_ident(p.polname::text) FROM ours o JOIN pg_policy p ON p.polrelid = o.relation
UNION ALL
SELECT o.named || ' is inherited by ' || i.inhrelid::regclass::text FROM ours o JOIN pg_inherits i ON i.inhparent = o.relation
UNION ALL
-- The server's own functions, operators and types are not recorded as dependencies.
SELECT DISTINCT p.named || ' depends on ' || pg_describe_object(d.refclassid, d.refobjid, 0)
FROM part p JOIN pg_depend d ON d.classid = p.class AND d.objid = p.object
WHERE p.class <> 'pg_trigger'::regclass AND p.class <> 'pg_rewrite'::regclass AND p.class <> 'pg_policy'::regclass
  AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass)
ORDER BY 1
LIMIT 5
