-- from: invented, unlike all others
-- want: id=lfdnr topic=? key=?nutzlast payload=nutzlast column=zustand pending=offen processing=in_bearbeitung sent=versendet failed=fehlgeschlagen sent_at=versendet_am attempts=versuche error=fehlertext created=erstellt_am
CREATE TYPE versandstatus AS ENUM ('offen','in_bearbeitung','versendet','fehlgeschlagen');
CREATE TABLE ausgangspost (lfdnr bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ereignistyp text NOT NULL, vorgangsnummer text NOT NULL, nutzlast jsonb NOT NULL, zustand versandstatus NOT NULL DEFAULT 'offen', erstellt_am timestamptz NOT NULL DEFAULT now(), versendet_am timestamptz, versuche int NOT NULL DEFAULT 0, fehlertext text);
INSERT INTO ausgangspost (ereignistyp, vorgangsnummer, nutzlast) SELECT 'AuftragAngelegt', 'V'||n, jsonb_build_object('auftragId', n) FROM generate_series(1,5) n;
