-- from: invented, unlike all others
-- want: id=identifiant topic=? key=? payload=?contenu sent_at=?publie_le created=?cree_le
CREATE TABLE evenements_sortants (identifiant uuid PRIMARY KEY, sujet text NOT NULL, cle text, contenu bytea NOT NULL, entetes jsonb, cree_le timestamptz NOT NULL DEFAULT now(), publie_le timestamptz, nb_essais int NOT NULL DEFAULT 0, derniere_erreur text);
CREATE INDEX ON evenements_sortants (cree_le) WHERE publie_le IS NULL;
INSERT INTO evenements_sortants (identifiant, sujet, cle, contenu, entetes) SELECT gen_random_uuid(), 'ventes', 'k'||n, convert_to('{"n":'||n||'}','UTF8'), '{"origine":"boutique"}' FROM generate_series(1,3) n;
