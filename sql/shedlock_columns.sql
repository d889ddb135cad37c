-- Returns the columns of an application's ShedLock table, how many characters fit (0: no limit), how many
-- decimals of a second are kept, and whether our role may use them. No row: the table does not exist.
SELECT a.attname,
    format_type(a.atttypid, -1) = 'timestamp with time zone' AS zoned,
    CASE WHEN a.atttypid IN ('varchar'::regtype, 'bpchar'::regtype) AND a.atttypmod > 4 THEN a.atttypmod - 4 ELSE 0 END AS chars,
    CASE WHEN a.atttypid IN ('timestamp'::regtype, 'timestamptz'::regtype) AND a.atttypmod >= 0 THEN a.atttypmod ELSE 6 END AS decimals,
    has_column_privilege(c.oid, a.attnum, 'SELECT') AND has_column_privilege(c.oid, a.attnum, 'INSERT')
        AND has_column_privilege(c.oid, a.attnum, 'UPDATE') AS allowed
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
WHERE n.nspname = $1 AND c.relname = $2 AND a.attname IN ('name', 'lock_until', 'locked_at', 'locked_by') AND NOT a.attisdropped
