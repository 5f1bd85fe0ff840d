Jfq¿ÖSê¿”L¿KoA¿
PX¿©êÀ